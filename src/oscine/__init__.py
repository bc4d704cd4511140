"""Speech to text on any GPU through WebGPU, and in NumPy where there is none."""
