"""The two ends of a guest agent's channel, for a machine without virtio.

    vport.py port LINK SOCKET        a terminal in place of the virtio port, its path in LINK; SOCKET is the host's end
    vport.py ask SOCKET CALL         one call from the host's end, after the handshake that flushes what lies in the channel

As with QEMU's own socket one host at a time is served, and what the agent says while nobody listens is lost."""
import json, os, select, socket, sys, tty


def port(link, path):
    host_end, guest_end = os.openpty()
    tty.setraw(guest_end)
    os.makedirs(os.path.dirname(link), exist_ok=True)
    if os.path.lexists(link):
        os.unlink(link)
    os.symlink(os.ttyname(guest_end), link)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    host = None
    while True:
        ready, _, _ = select.select([host_end, host or listener], [], [])
        if host_end in ready:
            said = os.read(host_end, 65536)
            if host:
                host.sendall(said)
        if listener in ready:
            host, _ = listener.accept()
        elif host in ready:
            asked = host.recv(65536)
            if asked:
                os.write(host_end, asked)
            else:
                host.close()
                host = None


def ask(path, call):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    s.connect(path)
    lines = s.makefile("rb")
    s.sendall(b'\xff{"execute":"guest-sync-delimited","arguments":{"id":4711}}\n')
    while json.loads(lines.readline().rpartition(b"\xff")[2] or b"{}").get("return") != 4711:
        pass
    s.sendall(json.dumps({"execute": call}).encode() + b"\n")
    answer = json.loads(lines.readline())
    print(json.dumps(answer.get("return", answer.get("error"))))
    sys.exit("error" in answer)


{"port": port, "ask": ask}[sys.argv[1]](*sys.argv[2:])
