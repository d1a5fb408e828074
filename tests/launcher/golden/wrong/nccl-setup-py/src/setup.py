from setuptools import setup

setup(name="tool", version="1.0")
