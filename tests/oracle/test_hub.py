"""haul's cache against huggingface_hub's, both ways, over a small hub on loopback."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest

HAUL = os.environ.get("HAUL", "build/haul")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL = "org/tiny"


def git_sha1(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def small_safetensors():
    header = json.dumps({"w": {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]}}).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + bytes(range(256))


FILES = {
    "config.json": json.dumps({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}).encode(),
    "tokenizer.json": b"{}",
    "sub/notes.txt": b"hello\n",
    "model.safetensors": small_safetensors(),
}
LARGE = {"model.safetensors"}


class Hub(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def send(self, status, headers, body=b""):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def answer(self):
        path = unquote(urlsplit(self.path).path)
        self.server.seen.append((self.command, path, dict(self.headers)))
        if path.startswith(f"/api/models/{MODEL}/tree/"):
            tree = []
            for name, content in FILES.items():
                entry = {"type": "file", "path": name, "size": len(content), "oid": git_sha1(content)}
                if name in LARGE:
                    sha = hashlib.sha256(content).hexdigest()
                    entry["lfs"] = {"oid": sha, "size": len(content), "pointerSize": 130}
                tree.append(entry)
            return self.send(200, {"Content-Type": "application/json"}, json.dumps(tree).encode())
        if path == f"/api/models/{MODEL}/revision/v9":
            return self.send(404, {"X-Error-Code": "RevisionNotFound"})
        if path.startswith(f"/api/models/{MODEL}"):
            siblings = []
            for name, content in FILES.items():
                entry = {"rfilename": name, "size": len(content), "blobId": git_sha1(content)}
                if name in LARGE:
                    sha = hashlib.sha256(content).hexdigest()
                    entry["lfs"] = {"sha256": sha, "size": len(content), "pointerSize": 130}
                siblings.append(entry)
            info = {"id": MODEL, "sha": COMMIT, "library_name": "transformers", "siblings": siblings}
            return self.send(200, {"Content-Type": "application/json"}, json.dumps(info).encode())
        prefix = f"/{MODEL}/resolve/"
        if path.startswith(prefix):
            revision, name = path[len(prefix):].split("/", 1)
            headers = {"X-Repo-Commit": COMMIT}
            if revision not in ("main", COMMIT):
                return self.send(404, {"X-Error-Code": "RevisionNotFound"})
            if name not in FILES:
                return self.send(404, headers | {"X-Error-Code": "EntryNotFound"})
            content = FILES[name]
            if name not in LARGE:
                return self.send(200, headers | {"ETag": f'"{git_sha1(content)}"'}, content)
            sha = hashlib.sha256(content).hexdigest()
            headers |= {"X-Linked-Etag": f'"{sha}"', "X-Linked-Size": str(len(content)),
                        # To both clients another host.
                        "Location": f"http://localhost:{self.server.server_port}/store/{name}"}
            return self.send(302, headers)
        if path.startswith("/store/"):
            return self.send(200, {"ETag": '"store"'}, FILES[path[len("/store/"):]])
        return self.send(404, {"X-Error-Code": "RepoNotFound"})

    do_GET = answer
    do_HEAD = answer


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.seen = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def environment(hub, home, **more):
    result = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    result.update(HF_ENDPOINT=f"http://127.0.0.1:{hub.server_port}", HF_HOME=str(home),
                  HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_XET="1",
                  HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_DISABLE_UPDATE_CHECK="1", no_proxy="*", **more)
    return result


def haul(hub, home, *arguments, **more):
    return subprocess.run([HAUL, *arguments], env=environment(hub, home, **more),
                          capture_output=True, text=True, timeout=60)


def peer(hub, home, code, **more):
    """Runs code with huggingface_hub in a process of its own, which reads the variables anew."""
    program = "import json\nimport huggingface_hub as h\n" + code
    done = subprocess.run([sys.executable, "-c", program], env=environment(hub, home, **more),
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def file_requests(hub):
    return [path for _, path, _ in hub.seen if "/resolve/" in path or path.startswith("/store/")]


def test_what_haul_fetched_huggingface_hub_finds(hub, tmp_path):
    done = haul(hub, tmp_path, "download", MODEL)
    assert done.returncode == 0, done.stderr
    folder = done.stdout.strip()
    asked = len(hub.seen)
    found = peer(hub, tmp_path, f"""
files = {{name: h.try_to_load_from_cache("{MODEL}", name) for name in {list(FILES)!r}}}
print(json.dumps([files, h.snapshot_download("{MODEL}", local_files_only=True),
                  h.hf_hub_download("{MODEL}", "config.json", local_files_only=True)]))
""")
    assert found[1] == folder
    assert found[2] == os.path.join(folder, "config.json")
    for name, content in FILES.items():
        assert found[0][name] == os.path.join(folder, name)
        with open(found[0][name], "rb") as file:
            assert file.read() == content
    assert len(hub.seen) == asked, "found without asking the hub"


def test_huggingface_hub_fetches_nothing_that_haul_has(hub, tmp_path):
    assert haul(hub, tmp_path, "download", MODEL).returncode == 0
    hub.seen.clear()
    folder = peer(hub, tmp_path, f'print(json.dumps(h.snapshot_download("{MODEL}")))')
    assert sorted(os.listdir(folder)) == sorted({name.split("/")[0] for name in FILES})
    assert not [entry for entry in hub.seen if entry[0] == "GET" and "/api/" not in entry[1]]


def test_what_huggingface_hub_fetched_haul_finds(hub, tmp_path):
    folder = peer(hub, tmp_path, f'print(json.dumps(h.snapshot_download("{MODEL}")))')
    hub.seen.clear()
    done = haul(hub, tmp_path, "download", MODEL, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["folder"] == folder
    assert not any(file["fetched"] for file in document["files"])
    assert file_requests(hub) == []


def test_one_file_of_huggingface_hub_is_not_fetched_again(hub, tmp_path):
    peer(hub, tmp_path, f'print(json.dumps(h.hf_hub_download("{MODEL}", "model.safetensors")))')
    hub.seen.clear()
    done = haul(hub, tmp_path, "download", MODEL, "--json")
    fetched = {file["name"]: file["fetched"] for file in json.loads(done.stdout)["files"]}
    assert fetched == {name: name != "model.safetensors" for name in FILES}
    assert not any(path.endswith("model.safetensors") for path in file_requests(hub))


def test_both_lay_out_the_same_cache(hub, tmp_path):
    def layout(home):
        root = os.path.join(home, "hub", "models--org--tiny")
        result = {}
        for folder, _, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                relative = os.path.relpath(path, root)
                if relative.startswith("trees"):
                    continue  # huggingface_hub's own note of the listing
                if os.path.islink(path):
                    result[relative] = os.readlink(path)
                else:
                    with open(path, "rb") as file:
                        result[relative] = file.read()
        return result

    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    assert haul(hub, ours, "download", MODEL).returncode == 0
    peer(hub, theirs, f'print(json.dumps(h.snapshot_download("{MODEL}")))')
    assert layout(ours) == layout(theirs)


def test_the_absence_of_a_file_is_remembered_alike(hub, tmp_path, monkeypatch):
    monkeypatch.delitem(FILES, "config.json")
    done = haul(hub, tmp_path, "download", MODEL)
    assert done.returncode == 0, done.stderr
    told = peer(hub, tmp_path, f"""
try:
    h.hf_hub_download("{MODEL}", "config.json")
except h.errors.EntryNotFoundError:
    pass
cached = h.try_to_load_from_cache("{MODEL}", "config.json")
print(json.dumps(cached is h._CACHED_NO_EXIST))
""")
    assert told is True


def test_the_token_file_of_huggingface_hub_is_used(hub, tmp_path):
    peer(hub, tmp_path, """
import pathlib, huggingface_hub.constants as c
path = pathlib.Path(c.HF_TOKEN_PATH)
path.parent.mkdir(parents=True, exist_ok=True)
path.write_text("hf_from_file\\n")
print(json.dumps(h.get_token()))
""")
    assert haul(hub, tmp_path, "download", MODEL).returncode == 0
    for _, path, headers in hub.seen:
        expected = None if path.startswith("/store/") else "Bearer hf_from_file"
        assert headers.get("Authorization") == expected, path
    assert any(path.startswith("/store/") for _, path, _ in hub.seen)


def test_what_the_hub_does_not_have_is_told_apart_as_the_peer_does(hub, tmp_path):
    told = peer(hub, tmp_path, f"""
def kind(**arguments):
    try:
        h.snapshot_download(**arguments)
    except Exception as error:
        return type(error).__name__
print(json.dumps([kind(repo_id="org/absent"), kind(repo_id="{MODEL}", revision="v9")]))
""")
    assert told == ["RepositoryNotFoundError", "RevisionNotFoundError"]
    absent = haul(hub, tmp_path, "download", "org/absent")
    revision = haul(hub, tmp_path, "download", f"{MODEL}@v9")
    assert absent.returncode == revision.returncode == 1
    assert "org/absent: no such model" in absent.stderr
    assert "no revision 'v9'" in revision.stderr


def test_offline_both_use_the_cache_alone(hub, tmp_path):
    assert haul(hub, tmp_path, "download", MODEL).returncode == 0
    hub.seen.clear()
    done = haul(hub, tmp_path, "download", MODEL, HF_HUB_OFFLINE="1")
    assert done.returncode == 1 and "HF_HUB_OFFLINE is set" in done.stderr
    assert peer(hub, tmp_path, f'print(json.dumps(h.snapshot_download("{MODEL}")))',
                HF_HUB_OFFLINE="1")
    assert hub.seen == []
