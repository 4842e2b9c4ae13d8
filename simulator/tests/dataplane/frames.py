"""Raw Ethernet frames with and without VLAN tags.

send INTERFACE TAG:TEXT...   broadcasts each text; TAG is a VLAN id or empty
receive INTERFACE LAST       prints "listening", then each TAG:TEXT that comes in, until the text LAST or for 20 s
"""

import socket
import struct
import sys
import time

TYPE = 0x88B5  # IEEE 802: local experiments
MAGIC = b"frames.py "
SOL_PACKET, PACKET_AUXDATA, PACKET_OUTGOING, VLAN_VALID = 263, 8, 4, 0x10


def open_socket(interface):
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    packets.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    packets.bind((interface, 0))
    return packets


def send(interface, *frames):
    packets = open_socket(interface)
    addresses = b"\xff" * 6 + packets.getsockname()[4]
    for frame in frames:
        tag, text = frame.split(":")
        tagging = struct.pack("!HH", 0x8100, int(tag)) if tag else b""
        packets.send((addresses + tagging + struct.pack("!H", TYPE) + MAGIC + text.encode() + b"\n").ljust(64, b"\0"))


def receive(interface, last):
    packets = open_socket(interface)
    print("listening", flush=True)
    end = time.monotonic() + 20
    while (left := end - time.monotonic()) > 0:
        packets.settimeout(left)
        try:
            frame, ancillary, _, address = packets.recvmsg(2048, 256)
        except TimeoutError:
            break
        if address[2] == PACKET_OUTGOING or MAGIC not in frame:
            continue
        tag = ""
        for level, kind, data in ancillary:
            if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                status, _, _, _, _, tci, _ = struct.unpack("IIIHHHH", data[:20])
                tag = tci & 0xFFF if status & VLAN_VALID else ""
        text = frame.split(MAGIC)[1].split(b"\n")[0].decode()
        print(f"{tag}:{text}", flush=True)
        if text == last:
            break


{"send": send, "receive": receive}[sys.argv[1]](*sys.argv[2:])
