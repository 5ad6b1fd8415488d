"""Before the first step: measure the speed, and decide every automatic setting."""
