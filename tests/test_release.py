"""What RELEASING.md promises of the workflow that publishes, as far as it can be known here."""

import os
import re
import subprocess
from pathlib import Path

import pytest

import diffclust

ROOT = Path(__file__).parents[1]
WORKFLOW = ".github/workflows/release.yml"
TEXT = (ROOT / WORKFLOW).read_text()
BUILD, PUBLISH = TEXT.split("\n  publish:\n")


def test_the_list_of_what_to_do_names_it():
    assert WORKFLOW in (ROOT / "RELEASING.md").read_text()


def test_actions_are_pinned_by_their_commit():
    used = re.findall(r"uses: (\S+)", TEXT)
    assert len(used) == 6
    assert [action for action in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)] == []


def test_what_it_makes_can_be_made():
    (targets,) = re.findall(r"run: make (.+)", TEXT)
    made = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {*targets.split()} <= {*made}


def test_only_the_job_with_a_reviewer_may_publish():
    assert "permissions: {}" in BUILD
    assert "id-token" not in BUILD
    assert "environment: pypi" in PUBLISH
    assert "secrets." not in TEXT
    assert "run:" not in PUBLISH


@pytest.mark.parametrize(("tag", "agrees"), [(f"v{diffclust.__version__}", True), ("v99.0", False), ("v", False)])
def test_a_tag_that_is_not_the_version_stops_it(tag, agrees):
    (check,) = re.findall(r"run: (test .+)", TEXT)
    found = subprocess.run(["bash", "-c", check], cwd=ROOT, env={**os.environ, "GITHUB_REF_NAME": tag})
    assert (found.returncode == 0) == agrees
