"""`--device all`: one model in several processes, one for each device.

With a process for each device their interpreters do not wait for each other, and a driver that
crashes its process, as under wgpu-native, ends one worker and not the program.
"""
