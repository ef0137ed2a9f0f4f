"""The texts of a probe where none are given: short, of many kinds, the same for every version.

Fixed texts make the numbers of two versions comparable token by token.
"""

from __future__ import annotations

TEXTS = (
    "The capital of France is Paris, and the capital of Italy is Rome.",
    "Water boils at one hundred degrees Celsius at sea level.",
    "Once upon a time there was a small boat that wanted to cross the ocean.",
    "In 1969 two people walked on the Moon for the first time.",
    "She opened the letter slowly, read it twice, and put it back into the drawer.",
    "The committee will meet on Tuesday at half past nine in the main hall.",
    "If it rains tomorrow, we shall stay at home and play chess.",
    "A recipe for bread: flour, water, salt, yeast and a lot of patience.",
    "def add(a, b):\n    return a + b\n\nprint(add(2, 3))",
    "for (int i = 0; i < n; i++) { sum += values[i]; }",
    "SELECT name, COUNT(*) FROM orders GROUP BY name ORDER BY 2 DESC;",
    '{"name": "Ada", "born": 1815, "tags": ["math", "poetry"]}',
    "12 + 30 = 42, 7 * 8 = 56, 100 / 4 = 25.",
    "Let x be a real number such that x^2 - 5x + 6 = 0. Then x = 2 or x = 3.",
    "The derivative of sin(x) is cos(x); the integral of 1/x is ln|x| + C.",
    "Question: What is the largest planet? Answer: Jupiter.",
    "Translate to German: Good morning, how are you? Guten Morgen, wie geht es dir?",
    "La vie est belle quand le soleil brille sur la mer.",
    "El perro corre rápido por el parque con su pelota roja.",
    "Die Katze schläft auf dem warmen Ofen und träumt von Mäusen.",
    "Привет, мир! Как дела сегодня?",
    "今日はとても良い天気ですね。",
    "1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89",
    "red green blue red green blue red green blue red green",
    "The quick brown fox jumps over the lazy dog. THE QUICK BROWN FOX.",
    "https://example.org/path?query=value&other=2#fragment",
    "Dear Sir or Madam,\n\nI am writing to ask about the position.\n\nYours faithfully,",
    "- milk\n- eggs\n- butter\n- two apples\n- a newspaper",
    "To be, or not to be, that is the question.",
    "Error: file not found: /tmp/data.csv (errno 2)",
    "The patient was given 5 mg twice a day for ten days.",
    "Think step by step. First, count the apples. Then, subtract the ones that were eaten.",
)
MAX_IDS = 48
"""Ids kept of each text; a thousand or two in all compute in a second on a small model."""
GOLDEN = (
    "Hello, world!",
    "  leading and   inner spaces\tand a tab",
    "naïve café – 42 €",
    "x = [1, 2, 3]\n\nprint(x)",
)
GOLDEN_CHAT = ("What is the capital of France?",)
