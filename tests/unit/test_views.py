#!/usr/bin/env python3
"""What rdmastat's views make of counter files: what is ranked, folded and summed, and by what name
a connection is found.

usage: test_views.py path/to/rdmastat
"""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_rdmastat as base  # takes the program's path off sys.argv
from test_rdmastat import header, row

L, S = "127.0.0.1", 6379


class Views(base.Rdmastat):
    """The tests of the base class run in its own file."""

    def fds(self, *expr):
        return [c["fd"] for c in json.loads(self.run_it("conn", "--json", *expr).stdout)["connections"]]

    def test_address(self):
        """An address alone is that of either end."""
        self.put(header(self.pid, rows_used=3)
                 + row(7, (L, S), (L, 5001), 1, 1, (0, 0, 0), (0, 0, 0))
                 + row(8, ("10.0.0.1", 5002), (L, S), 0, 0, (0, 0, 0), (0, 0, 0))
                 + row(9, ("::1", 80), ("fe80::2", 81), 0, 0, (0, 0, 0), (0, 0, 0), family=10))
        for expr, want in ((f"{L}:{S}", [7, 8]), (f"{L}:5001", [7]), ("10.0.0.0/8", [8]), ("[::1]:80", [9]),
                           ("[fe80::2]", [9]), (f"{L}:{S} tx tcp", [8]), (f"not {L}:{S}", [9]),
                           ("10.0.0.1 or [::1]:*", [8, 9]), (f"{L}:1", []), ("*:81", [9])):
            self.assertEqual(self.fds(*expr.split()), want, expr)
            self.assertEqual(self.fds(expr), want, expr)
        for bad, word in (("127.0.0.1:x", "port"), ("1.2.3", "IPv4"), ("127.0.0.1:", "port")):
            self.assertIn(word, self.run_it("conn", bad, rc=2).stderr)

for name in dir(base.Rdmastat):
    if name.startswith("test_"):
        setattr(Views, name, None)  # not twice

if __name__ == "__main__":
    unittest.main()
