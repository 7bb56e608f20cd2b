-- End every epoch up to one: from here on no batch may add to them. The caller removes their keys.
--
-- KEYS  1 state      ARGV  1 the highest released epoch
-- Returns the highest released epoch that is now stored.

local stored = tonumber(redis.call('HGET', KEYS[1], 'released_through') or '-1')
local released = string.format('%.0f', math.max(stored, tonumber(ARGV[1])))
redis.call('HSET', KEYS[1], 'released_through', released)
return released
