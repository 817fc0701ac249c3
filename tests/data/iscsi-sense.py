"""iscsi-sense.py URL: whether the LUN has a write cache (mode page 8, WCE), and its serial number, as a client sees them."""

import ctypes
import sys

scsi = ctypes.CDLL("libiscsi.so.7")
pointer = ctypes.c_void_p
for name in ("iscsi_create_context", "iscsi_parse_full_url", "scsi_cdb_modesense6", "scsi_cdb_inquiry", "iscsi_scsi_command_sync"):
    getattr(scsi, name).restype = pointer


class Url(ctypes.Structure):
    _fields_ = [(name, ctypes.c_char * 256) for name in ("portal", "target", "user", "passwd", "t_user", "t_passwd")]
    _fields_ += [("lun", ctypes.c_int)]


context = pointer(scsi.iscsi_create_context(b"iqn.2026-01.lab:sense"))
url = ctypes.cast(scsi.iscsi_parse_full_url(context, sys.argv[1].encode()), ctypes.POINTER(Url)).contents
scsi.iscsi_set_targetname(context, url.target)
scsi.iscsi_set_session_type(context, 2)
assert scsi.iscsi_full_connect_sync(context, url.portal, url.lun) == 0, "no session"


def ask(cdb):
    task, data = pointer(cdb), ctypes.create_string_buffer(255)
    scsi.scsi_task_add_data_in_buffer(task, 255, data)
    assert scsi.iscsi_scsi_command_sync(context, url.lun, task, None), "no answer"
    return data.raw


mode = ask(scsi.scsi_cdb_modesense6(0, 0, 8, 0, 255))
page = mode[4 + mode[3]:]
assert page[0] & 0x3F == 8, page
serial = ask(scsi.scsi_cdb_inquiry(1, 0x80, 255))
print("wce", page[2] >> 2 & 1, "serial", serial[4:4 + serial[3]].decode().strip())
