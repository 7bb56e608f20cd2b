-- Some of a hash's fields and values, packed as one string: one after the other they would cost the
-- client ten times as much to read.
--
-- KEYS  1 a hash of records
-- ARGV  1 cursor of HSCAN · 2 about how many fields
--
-- Returns {next cursor, MessagePack of field, value, field, value, …}; changes nothing.

local found = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
return {found[1], cmsgpack.pack(found[2])}
