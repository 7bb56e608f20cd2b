-- Resume a partition: store at which offset, which epochs are released, and what was lost.
--
-- KEYS  1 state · then the totals of every unreleased epoch
-- ARGV  1 the opening, as MessagePack: see streams/tables/count_table.py, which writes it
--
-- Returns {"opened"} or {"stale", offset, topic id} when the state is not the one that was read.

local opening = cmsgpack.unpack(ARGV[1])
local state = KEYS[1]

for i, key in ipairs(KEYS) do
  local found = redis.call('TYPE', key).ok
  if found ~= 'none' and found ~= 'hash' then
    error('WRONGKEY ' .. key .. ' must be a hash, found a ' .. found)
  end
end

local stored = redis.call('HMGET', state, 'offset', 'topic_id', 'released_through', 'applying')
if stored[4] or (stored[1] or '') ~= opening.read_offset or (stored[2] or '') ~= opening.read_topic_id then
  return {'stale', stored[1] or '', stored[2] or ''}
end

-- What was lost is marked before the offset moves past it.
if opening.lost > 0 then
  for i = 2, #KEYS do
    redis.call('HINCRBY', KEYS[i], 'incomplete', opening.lost)
  end
end
local released = math.max(tonumber(stored[3] or '-1'), opening.released_through)
redis.call('HSET', state, 'offset', opening.offset, 'topic_id', opening.topic_id,
  'released_through', string.format('%.0f', released))
return {'opened'}
