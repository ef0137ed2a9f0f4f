"""What sets the project up, runs it and checks what runs it. Nothing of it is part of the product.

setup.py and its modules are scripts of the bare standard library; the packages below need `.venv`.
"""
