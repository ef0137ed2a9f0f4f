"""The tokenizer of `tiny-llama`: one token for each byte, and a few that mark a chat's structure.

Any text goes in and comes back unchanged. Byte-level BPE without merges, in the `tokenizers` format,
with the chat template of ChatML.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

BOS = "<|endoftext|>"
EOS = "<|im_end|>"
START = "<|im_start|>"
SPECIAL = (BOS, START, EOS)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _byte_symbols() -> tuple[str, ...]:
    """GPT-2's printable stand-ins for the 256 bytes (`bytes_to_unicode`), in the order of the bytes."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    stand_ins = iter(range(256, 512))
    return tuple(chr(byte if byte in visible else next(stand_ins)) for byte in range(256))


VOCABULARY = (*SPECIAL, *_byte_symbols())
"""Every token; its position is its id."""
_SPACE = VOCABULARY[len(SPECIAL) + ord(" ")]


def is_printable(token: str) -> bool:
    """Whether the token stands for one printable ASCII character, the space included."""
    return token == _SPACE or (len(token) == 1 and "!" <= token <= "~")


def write_tokenizer(folder: Path, context: int) -> None:
    """Write tokenizer.json and tokenizer_config.json, with the chat template, into the folder."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": VOCABULARY.index(token),
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token in SPECIAL
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(VOCABULARY)}, "merges": []},
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": BOS,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer.json").write_bytes(msgspec.json.format(msgspec.json.encode(tokenizer)))
    (folder / "tokenizer_config.json").write_bytes(msgspec.json.format(msgspec.json.encode(config)))
