-- NETBLT for Wireshark: both wires of docs/protocol.
--
--   rfc998  version 2, RFC 998 to the byte, over UDP or directly on IP protocol 30. All of it.
--   sealed  version 12. Its clear headers; what is encrypted is shown as such.
--
-- Install: copy into the personal Lua plugins folder (Help > About Wireshark > Folders), or give
-- `-X lua_script:wireshark/netblt.lua` to wireshark or tshark. Wireshark 3.6 or later.
--
-- Packets on UDP are recognised by what they contain, whatever their ports, and then the rest of
-- their conversation with them. Where that fails: Decode As, or `-d udp.port==4000,netblt`.

local netblt = Proto("netblt", "NETBLT (RFC 998)")

local VERSION_998 = 2
local VERSION_SEALED = 12

local OPEN, RESPONSE, KEEPALIVE, QUIT, QUIT_ACK, ABORT = 0, 1, 2, 3, 4, 5
local DATA, LDATA, NULL_ACK, CONTROL, REFUSED, DONE, COOKIE = 6, 7, 8, 9, 10, 11, 12
local UNKNOWN, CHALLENGE, ANSWER, REPAIR, WHO, KEY, BRANCH = 13, 14, 15, 16, 17, 18, 19

local TYPES = {
    [OPEN] = "OPEN", [RESPONSE] = "RESPONSE", [KEEPALIVE] = "KEEPALIVE", [QUIT] = "QUIT",
    [QUIT_ACK] = "QUITACK", [ABORT] = "ABORT", [DATA] = "DATA", [LDATA] = "LDATA",
    [NULL_ACK] = "NULL-ACK", [CONTROL] = "CONTROL", [REFUSED] = "REFUSED", [DONE] = "DONE",
    [COOKIE] = "COOKIE", [UNKNOWN] = "UNKNOWN", [CHALLENGE] = "CHALLENGE", [ANSWER] = "ANSWER",
    [REPAIR] = "REPAIR", [WHO] = "WHO", [KEY] = "KEY", [BRANCH] = "BRANCH",
}
local RULES = {
    [0] = "ours", "SABUL", "Tsunami", "FOBS", "RBUDP", "UDT", "Reno", "Reno, delayed acknowledgements", "CUBIC",
    "HighSpeed TCP", "Scalable TCP",
}

local MEANS = { [0] = "a secret", "a static key" }

local GO, OK, RESEND = 0, 1, 2
local MESSAGES = { [GO] = "GO", [OK] = "OK", [RESEND] = "RESEND" }

-- Bytes of clear header, of the tag behind an encrypted body, of a MAC, of an OPEN and of its short
-- forms, by a secret and by a static key (sealed).
local SEALED_HEADER, SEALED_DATA_HEADER, TAG, MAC = 16, 32, 16, 16
local OPEN_BYTES, SHORT_OPEN_BYTES, SHORT_KEY_OPEN_BYTES = 1200, 564, 620
local WHO_BYTES, KEY_BYTES = 64, 48
local UNKNOWN_BYTES = 20
-- Bytes of header (rfc998).
local HEADER_998, DATA_HEADER_998 = 12, 24

---- Fields ------------------------------------------------------------------------------------

local f = {
    -- Both wires.
    wire = ProtoField.string("netblt.wire", "Wire"),
    version = ProtoField.uint8("netblt.version", "Version"),
    kind = ProtoField.uint8("netblt.type", "Type", base.DEC, TYPES),
    uid = ProtoField.uint32("netblt.uid", "Connection unique ID", base.HEX),
    buffer = ProtoField.uint64("netblt.buffer", "Buffer number", base.DEC),
    index = ProtoField.uint32("netblt.index", "Packet index", base.DEC),
    ack = ProtoField.uint32("netblt.ack", "High consecutive sequence number received", base.DEC),
    data = ProtoField.bytes("netblt.data", "Data"),
    data_bytes = ProtoField.uint32("netblt.data.length", "Data bytes", base.DEC),
    reason = ProtoField.string("netblt.reason", "Reason"),
    reserved = ProtoField.bytes("netblt.reserved", "Reserved"),
    -- rfc998.
    checksum = ProtoField.uint16("netblt.checksum", "Checksum", base.HEX),
    checksum_good = ProtoField.bool("netblt.checksum.good", "Checksum holds"),
    length = ProtoField.uint16("netblt.length", "Length", base.DEC),
    local_port = ProtoField.uint16("netblt.local_port", "Local port", base.DEC),
    foreign_port = ProtoField.uint16("netblt.foreign_port", "Foreign port", base.DEC),
    buffer_size = ProtoField.uint32("netblt.buffer_size", "Buffer size (bytes)", base.DEC),
    transfer_size = ProtoField.uint32("netblt.transfer_size", "Transfer size (bytes)", base.DEC),
    packet_size = ProtoField.uint16("netblt.packet_size", "DATA packet size (bytes)", base.DEC),
    burst_size = ProtoField.uint16("netblt.burst_size", "Burst size (packets)", base.DEC),
    burst_interval = ProtoField.uint16("netblt.burst_interval", "Burst interval (ms)", base.DEC),
    death_timer = ProtoField.uint16("netblt.death_timer", "Death timer (s)", base.DEC),
    flags = ProtoField.uint16("netblt.flags", "Flags", base.HEX),
    flag_write = ProtoField.bool("netblt.flags.write", "M: the active end sends", 16, nil, 0x0001),
    flag_check = ProtoField.bool("netblt.flags.checksum", "C: data checksums", 16, nil, 0x0002),
    flag_last = ProtoField.bool("netblt.flags.last", "L: the last buffer", 16, nil, 0x0001),
    max_outstanding = ProtoField.uint16(
        "netblt.max_outstanding", "Maximum outstanding buffers", base.DEC),
    client = ProtoField.string("netblt.client", "Client string"),
    data_checksum = ProtoField.uint16("netblt.data_checksum", "Data checksum", base.HEX),
    data_checksum_good = ProtoField.bool("netblt.data_checksum.good", "Data checksum holds"),
    message = ProtoField.uint8("netblt.message", "Message", base.DEC, MESSAGES),
    sequence = ProtoField.uint16("netblt.message.sequence", "Sequence number", base.DEC),
    control_timer = ProtoField.uint16("netblt.control_timer", "Control timer (ms)", base.DEC),
    missing = ProtoField.uint16("netblt.resend.count", "Packets missing", base.DEC),
    missing_index = ProtoField.uint16("netblt.resend.index", "Missing packet", base.DEC),
    -- sealed.
    repair = ProtoField.uint32("netblt.repair", "Repair packet", base.DEC),
    image_bytes = ProtoField.uint32("netblt.image", "Image bytes of the buffer", base.DEC),
    rules = ProtoField.uint8("netblt.rules", "Whose rules", base.DEC, RULES),
    generation = ProtoField.uint8("netblt.generation", "Generation", base.DEC),
    connection = ProtoField.uint32("netblt.connection", "Connection ID of the addressee", base.HEX),
    chosen = ProtoField.uint32("netblt.connection.chosen", "Connection ID chosen", base.HEX),
    number = ProtoField.uint64("netblt.number", "Packet number", base.DEC),
    epoch = ProtoField.uint64("netblt.epoch", "Epoch", base.DEC),
    cookie = ProtoField.bytes("netblt.cookie", "Cookie"),
    means = ProtoField.uint8("netblt.means", "Proved by", base.DEC, MEANS),
    key_id = ProtoField.bytes("netblt.key_id", "Key ID"),
    nonce = ProtoField.bytes("netblt.nonce", "Nonce"),
    public_key = ProtoField.bytes("netblt.public_key", "Public key"),
    noise_length = ProtoField.uint16("netblt.noise.length", "Noise message length", base.DEC),
    noise = ProtoField.bytes("netblt.noise", "Noise message"),
    padding = ProtoField.bytes("netblt.padding", "Padding"),
    mac = ProtoField.bytes("netblt.mac", "MAC"),
    hint = ProtoField.bool("netblt.hint", "A hint: not proven"),
    reason_length = ProtoField.uint16("netblt.reason.length", "Reason length", base.DEC),
    encrypted = ProtoField.bytes("netblt.encrypted", "Encrypted"),
    encrypted_bytes = ProtoField.uint32("netblt.encrypted.length", "Encrypted bytes", base.DEC),
    tag = ProtoField.bytes("netblt.tag", "Authentication tag"),
}
do
    local all = {}
    for _, field in pairs(f) do
        all[#all + 1] = field
    end
    netblt.fields = all
end

local e = {
    short = ProtoExpert.new("netblt.truncated", "Shorter than its layout",
        expert.group.MALFORMED, expert.severity.ERROR),
    checksum = ProtoExpert.new("netblt.checksum.bad", "The checksum does not hold",
        expert.group.CHECKSUM, expert.severity.ERROR),
    unknown = ProtoExpert.new("netblt.unknown", "Unknown type",
        expert.group.UNDECODED, expert.severity.WARN),
}
netblt.experts = { e.short, e.checksum, e.unknown }

---- Reading ------------------------------------------------------------------------------------

-- A capture may have cut a packet anywhere, and a packet may be shorter than its type's layout. A
-- range beyond the captured bytes ends the script with an error. Therefore only these functions
-- call `range`, and only within the captured bytes.

-- All `bytes` at `at`, or nothing.
local function whole(tvb, at, bytes)
    if bytes > 0 and at + bytes <= tvb:len() then
        return tvb:range(at, bytes)
    end
end

-- As many of the `bytes` at `at` as were captured, or nothing.
local function part(tvb, at, bytes)
    return whole(tvb, at, math.min(bytes, tvb:len() - at))
end

-- The number of `bytes` at `at`, or nothing.
local function uint(tvb, at, bytes)
    local range = whole(tvb, at, bytes)
    return range and range:uint()
end

-- The same of 8 bytes, in decimal.
local function decimal(tvb, at)
    local range = whole(tvb, at, 8)
    return range and tostring(range:uint64()) or ""
end

-- Whether `bytes` of the packet were captured; says so in the tree if not.
local function has(tvb, tree, bytes)
    local enough = tvb:len() >= bytes
    if not enough then
        tree:add_proto_expert_info(e.short)
    end
    return enough
end

-- Adds a field of fixed size. One that was not captured is said to be missing.
local function add(tree, field, tvb, at, bytes)
    local range = whole(tvb, at, bytes)
    if range then
        return tree:add(field, range)
    end
    tree:add_proto_expert_info(e.short)
    return tree
end

-- Adds as much of a field of any size as was captured.
local function add_part(tree, field, tvb, at, bytes)
    local range = part(tvb, at, bytes)
    if range then
        tree:add(field, range)
    end
end

-- Whether all that was captured of `bytes` at `at` is zero.
local function all_zero(tvb, at, bytes)
    local range = part(tvb, at, bytes)
    return not range or not range:raw():find("[^\0]")
end

---- The rfc998 wire ---------------------------------------------------------------------------

-- The ones-complement sum of the 16-bit words that `range` has, if any; an odd byte is padded with
-- zero. What contains its own checksum sums to 0xffff.
local function sum(range)
    local bytes = range and range:raw() or ""
    local total = 0
    for at = 1, #bytes - 1, 2 do
        local high, low = bytes:byte(at, at + 1)
        total = total + high * 256 + low
    end
    if #bytes % 2 == 1 then
        total = total + bytes:byte(#bytes) * 256
    end
    while total > 0xffff do
        total = total % 0x10000 + math.floor(total / 0x10000)
    end
    return total
end

local function is_data(kind)
    return kind == DATA or kind == LDATA
end

-- What the checksum in the header covers: all, but of DATA only the header.
local function covered(tvb, kind, length)
    return whole(tvb, 0, is_data(kind) and DATA_HEADER_998 or length)
end

-- Whether what is there of the packet, which may be more than was captured of it, is one.
local function is_998(tvb)
    if tvb:len() < HEADER_998 or uint(tvb, 2, 1) ~= VERSION_998 then
        return false
    end
    local kind, length = uint(tvb, 3, 1), uint(tvb, 4, 2)
    local least = is_data(kind) and DATA_HEADER_998 or HEADER_998
    if kind > DONE or length < least or length > tvb:reported_len() then
        return false
    end
    local needed = is_data(kind) and DATA_HEADER_998 or length
    return tvb:len() >= needed and sum(covered(tvb, kind, length)) == 0xffff
end

-- A string ends at its first zero byte; what follows is padding. A capture may have cut it.
local function add_string(tree, field, tvb, at, stop)
    local range = part(tvb, at, stop - at)
    if not range then
        return ""
    end
    local zero = range:raw():find("\0", 1, true)
    local characters = part(range, 0, zero and zero - 1 or range:len())
    local text = characters and characters:string(ENC_UTF_8) or ""
    tree:add(field, range, text)
    return text
end

local function opening_998(tvb, tree, stop)
    if stop < 36 then
        tree:add_proto_expert_info(e.short)
        return ""
    end
    add(tree, f.uid, tvb, 12, 4)
    add(tree, f.buffer_size, tvb, 16, 4)
    add(tree, f.transfer_size, tvb, 20, 4)
    add(tree, f.packet_size, tvb, 24, 2)
    add(tree, f.burst_size, tvb, 26, 2)
    add(tree, f.burst_interval, tvb, 28, 2)
    add(tree, f.death_timer, tvb, 30, 2)
    local flags = add(tree, f.flags, tvb, 32, 2)
    add(flags, f.flag_write, tvb, 32, 2)
    add(flags, f.flag_check, tvb, 32, 2)
    add(tree, f.max_outstanding, tvb, 34, 2)
    add_string(tree, f.client, tvb, 36, stop)
    return string.format(" %d-byte buffers, %d-byte packets, %d packets every %d ms",
        uint(tvb, 16, 4), uint(tvb, 24, 2), uint(tvb, 26, 2), uint(tvb, 28, 2))
end

local function data_998(tvb, tree, length, stop)
    if stop < DATA_HEADER_998 then
        tree:add_proto_expert_info(e.short)
        return ""
    end
    add(tree, f.buffer, tvb, 12, 4)
    add(tree, f.ack, tvb, 16, 2)
    add(tree, f.index, tvb, 18, 2)
    local said = uint(tvb, 20, 2)
    local item = add(tree, f.data_checksum, tvb, 20, 2)
    local flags = add(tree, f.flags, tvb, 22, 2)
    add(flags, f.flag_last, tvb, 22, 2)
    local bytes = length - DATA_HEADER_998
    tree:add(f.data_bytes, bytes):set_generated()
    local data = part(tvb, DATA_HEADER_998, stop - DATA_HEADER_998)
    if data then
        tree:add(f.data, data)
        -- Without flag C, which only OPEN and RESPONSE tell, it is zero.
        if said ~= 0 and stop == length then
            local good = sum(data) == 0xffff - said
            item:add(f.data_checksum_good, good):set_generated()
            if not good then
                item:add_proto_expert_info(e.checksum)
            end
        end
    end
    local last = uint(tvb, 23, 1) % 2 == 1 and ", last buffer" or ""
    return string.format(" buffer %d packet %d ack %d, %d bytes%s", uint(tvb, 12, 4),
        uint(tvb, 18, 2), uint(tvb, 16, 2), bytes, last)
end

local function null_ack_998(tvb, tree, stop)
    if stop < 20 then
        tree:add_proto_expert_info(e.short)
        return ""
    end
    add(tree, f.ack, tvb, 12, 2)
    add(tree, f.burst_size, tvb, 14, 2)
    add(tree, f.burst_interval, tvb, 16, 2)
    return string.format(" ack %d, %d packets every %d ms", uint(tvb, 12, 2),
        uint(tvb, 14, 2), uint(tvb, 16, 2))
end

-- Bytes of the control message at `at`; nothing if it goes beyond `stop` or is of no known type.
local function message_bytes(tvb, at, stop)
    local kind = at + 8 <= stop and uint(tvb, at, 1)
    local bytes
    if kind == GO then
        bytes = 8
    elseif kind == OK then
        bytes = 16
    elseif kind == RESEND and at + 12 <= stop then
        local count = uint(tvb, at + 8, 2)
        bytes = 12 + 2 * (count + count % 2)
    end
    if bytes and at + bytes <= stop then
        return bytes
    end
end

local function message_998(tvb, tree, at, bytes)
    local kind, number = uint(tvb, at, 1), uint(tvb, at + 4, 4)
    local branch = tree:add(netblt, whole(tvb, at, bytes))
    add(branch, f.message, tvb, at, 1)
    add(branch, f.sequence, tvb, at + 2, 2)
    add(branch, f.buffer, tvb, at + 4, 4)
    local words = string.format("%s(%d)", MESSAGES[kind], number)
    if kind == OK then
        add(branch, f.burst_size, tvb, at + 8, 2)
        add(branch, f.burst_interval, tvb, at + 10, 2)
        add(branch, f.control_timer, tvb, at + 12, 2)
    elseif kind == RESEND then
        local count = uint(tvb, at + 8, 2)
        add(branch, f.missing, tvb, at + 8, 2)
        for i = 0, count - 1 do
            add(branch, f.missing_index, tvb, at + 12 + 2 * i, 2)
        end
        words = string.format("RESEND(%d: %d packets)", number, count)
    end
    branch:set_text(string.format("%s, sequence number %d", words, uint(tvb, at + 2, 2)))
    return words
end

local function control_998(tvb, tree, stop)
    local words, at = {}, HEADER_998
    while at < stop do
        local bytes = message_bytes(tvb, at, stop)
        if not bytes then
            tree:add_proto_expert_info(e.short)
            break
        end
        words[#words + 1] = message_998(tvb, tree, at, bytes)
        at = at + bytes
    end
    return " " .. table.concat(words, " ")
end

local function dissect_998(tvb, pinfo, tree)
    local kind, length = uint(tvb, 3, 1), uint(tvb, 4, 2)
    -- IP may pad, and a capture may cut.
    local stop = math.min(length, tvb:len())
    local root = tree:add(netblt, part(tvb, 0, math.max(stop, HEADER_998)))
    root:add(f.wire, "rfc998"):set_generated()
    local item = add(root, f.checksum, tvb, 0, 2)
    if length < HEADER_998 then
        root:add_proto_expert_info(e.short)
    elseif tvb:len() >= (is_data(kind) and DATA_HEADER_998 or length) then
        local good = sum(covered(tvb, kind, length)) == 0xffff
        item:add(f.checksum_good, good):set_generated()
        if not good then
            item:add_proto_expert_info(e.checksum)
        end
    end
    add(root, f.version, tvb, 2, 1)
    add(root, f.kind, tvb, 3, 1)
    add(root, f.length, tvb, 4, 2)
    add(root, f.local_port, tvb, 6, 2)
    add(root, f.foreign_port, tvb, 8, 2)
    add(root, f.reserved, tvb, 10, 2)
    local words = ""
    if kind == OPEN or kind == RESPONSE then
        words = opening_998(tvb, root, stop)
    elseif is_data(kind) then
        words = data_998(tvb, root, length, stop)
    elseif kind == NULL_ACK then
        words = null_ack_998(tvb, root, stop)
    elseif kind == CONTROL then
        words = control_998(tvb, root, stop)
    elseif kind == QUIT or kind == ABORT or kind == REFUSED then
        words = " " .. add_string(root, f.reason, tvb, HEADER_998, stop)
    elseif kind > DONE then
        root:add_proto_expert_info(e.unknown)
    end
    return root, words
end

---- The sealed wire ---------------------------------------------------------------------------

-- How long a packet of each type may be: its encrypted body and the tag lie behind the header.
-- Handshake packets say their length themselves.
local LEAST, MOST = {}, {}
local function body(kind, least, most)
    LEAST[kind], MOST[kind] = SEALED_HEADER + least + TAG, SEALED_HEADER + most + TAG
end
body(KEEPALIVE, 4, 4)
body(CHALLENGE, 8, 8)
body(ANSWER, 8, 8)
body(BRANCH, 52, 452)
body(QUIT, 0, 400)
body(QUIT_ACK, 0, 0)
body(ABORT, 0, 400)
body(DATA, 16, 16 + 65000)
body(LDATA, 16, 16 + 65000)
body(REPAIR, 16, 16 + 65000)
body(NULL_ACK, 24, 72)
body(CONTROL, 4, 65000)
body(DONE, 0, 0)

-- Whether the packet can be one: no checksum helps here, but many bytes have to be zero.
local function is_sealed(tvb)
    local length = tvb:reported_len()
    if tvb:len() < SEALED_HEADER or uint(tvb, 2, 1) ~= VERSION_SEALED then
        return false
    end
    local first, kind = uint(tvb, 0, 1), uint(tvb, 3, 1)
    -- Whose rules data follow, or how an OPEN is proved.
    if first > 0 and not (is_data(kind) and RULES[first]) and not (kind == OPEN and MEANS[first]) then
        return false
    end
    local of_buffer = is_data(kind) or kind == REPAIR
    if not of_buffer and uint(tvb, 1, 1) ~= 0 then
        return false
    end
    if kind == OPEN then
        local short = first == 0 and SHORT_OPEN_BYTES or SHORT_KEY_OPEN_BYTES
        return (length == OPEN_BYTES or length == short) and all_zero(tvb, 4, 4)
            and not all_zero(tvb, 8, 4)
    elseif kind == WHO then
        return length == WHO_BYTES and all_zero(tvb, 16, WHO_BYTES - 16)
    elseif kind == KEY then
        return length == KEY_BYTES
    elseif kind == RESPONSE then
        return tvb:len() >= 18 and length == 18 + uint(tvb, 16, 2)
            and not all_zero(tvb, 8, 4)
    elseif kind == COOKIE then
        return length == SEALED_HEADER + 32 + MAC and all_zero(tvb, 8, 4)
    elseif kind == REFUSED then
        return tvb:len() >= 18 and length == 18 + uint(tvb, 16, 2) + MAC
            and all_zero(tvb, 8, 3) and uint(tvb, 11, 1) <= 1
    elseif kind == UNKNOWN then
        return length == UNKNOWN_BYTES and all_zero(tvb, 4, 4) and not all_zero(tvb, 8, 4)
    end
    local fits = LEAST[kind] and length >= LEAST[kind] and length <= MOST[kind]
    -- A number of 2^48 would take some years to reach.
    if not fits or not all_zero(tvb, 8, 2) then
        return false
    end
    return not of_buffer or (tvb:len() >= SEALED_DATA_HEADER and all_zero(tvb, 16, 2))
end

local function add_encrypted(tvb, tree, at)
    local bytes = tvb:reported_len() - at - TAG
    if bytes < 0 then
        tree:add_proto_expert_info(e.short)
        return 0
    end
    tree:add(f.encrypted_bytes, bytes):set_generated()
    add_part(tree, f.encrypted, tvb, at, bytes)
    add_part(tree, f.tag, tvb, at + bytes, TAG)
    return bytes
end

-- A length of two bytes at `at`, and so many bytes behind it; with `id_field` an id of 8 bytes
-- between. Where they end, or nothing if they go beyond the packet.
local function add_counted(tvb, tree, at, length_field, field, id_field)
    local bytes = uint(tvb, at, 2)
    add(tree, length_field, tvb, at, 2)
    if not bytes then
        return
    end
    if id_field then
        add_part(tree, id_field, tvb, at + 2, 8)
        at = at + 8
    end
    if at + 2 + bytes > tvb:reported_len() then
        tree:add_proto_expert_info(e.short)
        return
    end
    add_part(tree, field, tvb, at + 2, bytes)
    return at + 2 + bytes
end

local function handshake(tvb, tree, kind)
    add(tree, f.connection, tvb, 4, 4)
    add(tree, f.chosen, tvb, 8, 4)
    add(tree, f.uid, tvb, 12, 4)
    local uid = uint(tvb, 12, 4)
    local words = string.format(" uid 0x%08x", uid)
    if kind == OPEN then
        add_part(tree, f.cookie, tvb, 16, 32)
        local by_key = uint(tvb, 0, 1) == 1
        local stop = add_counted(tvb, tree, 48, f.noise_length, f.noise, by_key and f.key_id)
        local mac = tvb:reported_len() - MAC
        if stop and stop <= mac then
            add_part(tree, f.padding, tvb, stop, mac - stop)
            add_part(tree, f.mac, tvb, mac, MAC)
        end
        local bare = tvb:len() >= 48 and all_zero(tvb, 16, 32)
        words = words .. (by_key and ", by a static key" or "")
        return words .. (bare and "" or ", with a cookie")
    elseif kind == RESPONSE then
        add_counted(tvb, tree, 16, f.noise_length, f.noise)
    elseif kind == COOKIE then
        add_part(tree, f.cookie, tvb, 16, 32)
        add_part(tree, f.mac, tvb, 48, MAC)
    elseif kind == REFUSED then
        local stop = add_counted(tvb, tree, 16, f.reason_length, f.reason)
        if stop and stop + MAC <= tvb:len() then
            local hint = all_zero(tvb, stop, MAC)
            add(tree, f.mac, tvb, stop, MAC)
            tree:add(f.hint, hint):set_generated()
            local reason = whole(tvb, 18, stop - 18)
            reason = reason and reason:string(ENC_UTF_8) or ""
            local now = uint(tvb, 11, 1) == 1 and " for now" or ""
            words = words .. (hint and " (hint): " or now .. ": ") .. reason
        end
    end
    return words
end

local function dissect_sealed(tvb, pinfo, tree)
    local kind = uint(tvb, 3, 1)
    local root = tree:add(netblt, part(tvb, 0, tvb:len()))
    root:add(f.wire, "sealed"):set_generated()
    if is_data(kind) then
        add(root, f.rules, tvb, 0, 1)
        add(root, f.generation, tvb, 1, 1)
    elseif kind == REPAIR then
        add(root, f.reserved, tvb, 0, 1)
        add(root, f.generation, tvb, 1, 1)
    elseif kind == OPEN then
        add(root, f.means, tvb, 0, 1)
        add(root, f.reserved, tvb, 1, 1)
    else
        add(root, f.reserved, tvb, 0, 2)
    end
    add(root, f.version, tvb, 2, 1)
    add(root, f.kind, tvb, 3, 1)
    if kind == OPEN or kind == RESPONSE or kind == COOKIE or kind == REFUSED then
        return root, handshake(tvb, root, kind)
    end
    if kind == WHO or kind == KEY then
        add(root, f.nonce, tvb, 4, 12)
        if kind == KEY then
            add_part(root, f.public_key, tvb, 16, 32)
        end
        return root, ""
    end
    if kind == UNKNOWN then
        if not has(tvb, root, UNKNOWN_BYTES) then
            return root, ""
        end
        add(root, f.connection, tvb, 8, 4)
        add(root, f.number, tvb, 12, 8)
        return root, string.format(" connection 0x%08x", uint(tvb, 8, 4))
    end
    add(root, f.connection, tvb, 4, 4)
    local number = whole(tvb, 8, 8)
    root:add(f.number, number)
    root:add(f.epoch, number:uint64():rshift(22)):set_generated()
    local words = " number " .. decimal(tvb, 8)
    if kind > BRANCH then
        root:add_proto_expert_info(e.unknown)
    end
    if not is_data(kind) and kind ~= REPAIR then
        return root, words .. string.format(", %d bytes encrypted",
            add_encrypted(tvb, root, SEALED_HEADER))
    end
    if not has(tvb, root, SEALED_DATA_HEADER) then
        return root, words
    end
    add(root, f.buffer, tvb, 16, 8)
    if kind == REPAIR then
        add(root, f.repair, tvb, 24, 4)
        add(root, f.image_bytes, tvb, 28, 4)
        return root, string.format("%s buffer %s repair %d of %d bytes, %d bytes encrypted", words,
            decimal(tvb, 16), uint(tvb, 24, 4), uint(tvb, 28, 4),
            add_encrypted(tvb, root, SEALED_DATA_HEADER))
    end
    add(root, f.index, tvb, 24, 4)
    add(root, f.ack, tvb, 28, 4)
    local bytes = add_encrypted(tvb, root, SEALED_DATA_HEADER)
    return root, string.format("%s buffer %s packet %d ack %d, %d bytes encrypted", words,
        decimal(tvb, 16), uint(tvb, 24, 4), uint(tvb, 28, 4),
        bytes)
end

---- Entry -------------------------------------------------------------------------------------

-- How many bytes were NETBLT's; 0 leaves them to others.
function netblt.dissector(tvb, pinfo, tree)
    local dissect
    if tvb:len() >= HEADER_998 and uint(tvb, 2, 1) == VERSION_998 then
        dissect = dissect_998
    elseif tvb:len() >= SEALED_HEADER and uint(tvb, 2, 1) == VERSION_SEALED then
        dissect = dissect_sealed
    else
        return 0
    end
    local root, words = dissect(tvb, pinfo, tree)
    local kind = uint(tvb, 3, 1)
    local title = (TYPES[kind] or string.format("type %d", kind)) .. words:gsub("%s+$", "")
    pinfo.cols.protocol = "NETBLT"
    pinfo.cols.info = title
    root:append_text(", " .. title)
    return tvb:len()
end

netblt:register_heuristic("udp", function(tvb, pinfo, tree)
    if not is_998(tvb) and not is_sealed(tvb) then
        return false
    end
    netblt.dissector(tvb, pinfo, tree)
    pinfo.conversation = netblt
    return true
end)

-- Assigned to NETBLT by IANA.
DissectorTable.get("ip.proto"):add(30, netblt)
DissectorTable.get("udp.port"):add_for_decode_as(netblt)
