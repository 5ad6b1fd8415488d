"""Training: the plan, the loop, and what is learned."""
