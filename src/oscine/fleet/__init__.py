"""`--device all`: a model in several processes, one a device, that is used as one model.

A process a device keeps the interpreter of one from waiting for the others', and a driver that
ends its process, as under wgpu-native, ends one worker and not the program.
"""
