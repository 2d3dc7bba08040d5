# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Throw-away systemd nodes for the demo and the tests of this clone.

Only the standard library is imported here: the package runs before anything is installed.
"""
