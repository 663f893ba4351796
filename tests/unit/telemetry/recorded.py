"""What real clients have pushed to a node, to subscriptions of a few metrics."""

from __future__ import annotations

from base64 import b64decode
from zlib import decompress

LIBRDKAFKA = decompress(b64decode(
    "eNqtks9Kw0AQxk2RCiuCrgerIkzx5p+tqehBKL35BB6FMibTJjTZjZuNKAgiiAgK6ov4CvoSPoUIevPopn/UghUU9/Qx8zH722+HXY4xl02zcS"
    "8KSZqGRq/NR1lBu2yOTRqNMkXPhEpi1Ah9XmSj5nDV5Y9FNsMmkqPFRCs/80jbWrEq3E2xxk8dtq50S2CCXkCijc02ir6vL4QJtDImsiKMSeBB"
    "iy/vBAR4QBpbBP025G0IJcQpNJUGBKl8EksLbH7q5nr36f71qTQL8ydjD1aUR3rnTwwxHnYZrAjjLP4bg/vBcOaw6nAGT0lJnWSFpwk7QqMhXs"
    "kRcgWqCZ+uFCg1uBeFaUA+JKQhJdv1f47ipc7Pf4ziOwyjDEZ8JefoSJBZvGcvHM4jtsoW4u1i+2owi2Ivi8lCyeHXDqsMB9H2NdoX+xllX3ai"
    "NrATn9+A0PVDmpD007xqrLM/DbpjhkQT3D4f1zfu6r8myjekNrAh/0PkOr2c3gFb8TiW"
))  # fmt: skip
"""A producer of librdkafka 2.16.0 with `transactional.id=tx-1` and `client.rack=r1`, which has sent nothing."""

JAVA = decompress(b64decode(
    "eNrNlr1Lw0AYxq0fUF8E6+FQcVEHwUJia9JP0HZ28QNUXJRrcqahTS69XsVRECdn/xIFEQcVBHVSUP8KJ3FzMqmKtFa0KSdmSXIH4f29z/s8Ob"
    "gMwBqEIGgwWnXWTR11Q6cRg1nof1uxiJUnzNtIQlyjdoWWiOTdqxZhUjSRUtIkn5ai8XxCUhNEkVJJXZXyRNfiMVWJxdIKIkiDacoMGTtYKxC5"
    "iDeKWP74hrxBuFaQLWxjw31jRKNMr3xs6zLDnETGYGRo+3k3e/70GB4d33lxLnJH2Uwf9HDqmBrqggCHO/EkZUQh2SpJCRvu2lZEhalPho73Kx"
    "OCXgczbnKT2h5HtIHqj/SZ8a0PpxyXMqMwPJA7uls/c+EaKYO5UGc4AAfiSRbQnH99BgF91QcexFddQeW2+z8JEwPby7DXvP/1M1VT41A81yKa"
    "h1TLahCsy5ZpN5MjmIN78WUz5PgsG28azVzu9v8nl1+LxzIQgWyrWE7tuVwlFV6jq8vh5tMFN+JZLFQExYfPfWbwf/6zfDNzv6C6FU9loxKofq"
    "zk00b/Oh28UPOHdSIeaxWttJ8OXmSfxfcbIvtYfPUraKndE2Zd7afWVaTgnjBfAQsnaNE="
))  # fmt: skip
"""Kafka's console consumer 4.3.0 in the group g1, which has read three records of the topic t."""
