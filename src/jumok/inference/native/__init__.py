"""The step of a GPT on a CPU as a library in C++, which is compiled on the machine where it is used."""
