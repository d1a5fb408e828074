from .data import load

print(load())
