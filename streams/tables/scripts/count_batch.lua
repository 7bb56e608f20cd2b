-- Add one batch of one partition: counts, refusals, fingerprints and the new offset, or nothing.
--
-- Redis does not undo a script that fails half-way, so every check comes before the first write,
-- the first write sets `applying` and the last one removes it. If `applying` is set at the start, an
-- earlier batch was only partly written: refuse this one; the worker then stops the partition.
--
-- KEYS  1 state · 2 totals · 3 late · then, for each tally, the keys that it names by number
-- ARGV  1 the batch, as MessagePack (see streams/tables/count_table.py, which writes it) · then
--         what each tally appends to strings (fingerprints, rows of records), named by number
--
-- Returns {"applied"}, {"stale", offset, topic id}, {"closed", released through} or
-- {"half", offset that was begun}; an error means that nothing was written and something is wrong.

local batch = cmsgpack.unpack(ARGV[1])
local state, totals, late = KEYS[1], KEYS[2], KEYS[3]

local function must_be(key, kind)
  local found = redis.call('TYPE', key).ok
  if found ~= 'none' and found ~= kind then
    error('WRONGKEY ' .. key .. ' must be a ' .. kind .. ', found a ' .. found)
  end
end

-- 1. Is this the state that the batch was judged against?
must_be(state, 'hash')
local stored = redis.call('HMGET', state, 'offset', 'topic_id', 'released_through', 'applying')
if stored[4] then return {'half', stored[4]} end
if stored[1] ~= batch.expected or stored[2] ~= batch.topic_id then
  return {'stale', stored[1] or '', stored[2] or ''}
end
local released_through = tonumber(stored[3] or '-1')

-- 2. Can every write succeed?
must_be(totals, 'hash')
must_be(late, 'hash')
for _, tally in ipairs(batch.tallies) do
  if tally.epoch and tally.epoch <= released_through then
    return {'closed', stored[3]}
  end
  must_be(KEYS[tally.totals], 'hash')
  if tally.cells then
    local key = KEYS[tally.cells]
    must_be(key, 'string')
    if #tally.cell_numbers ~= #tally.cell_counts then error('BADBATCH cells') end
    local size = redis.call('STRLEN', key)
    if size ~= 0 and size ~= tally.cells_bytes then
      error('WRONGKEY ' .. key .. ' must hold ' .. tally.cells_bytes .. ' bytes, found ' .. size)
    end
  end
  for _, part in ipairs(tally.appended) do
    local key = KEYS[part.key]
    must_be(key, 'string')
    local size = redis.call('STRLEN', key)
    if size ~= part.bytes then
      error('WRONGKEY ' .. key .. ' must hold ' .. part.bytes .. ' bytes, found ' .. size)
    end
    if size + #ARGV[part.data] > batch.chunk_limit then error('BADBATCH chunk') end
  end
end

-- 3. Write.
redis.call('HSET', state, 'applying', batch.next)

local function add(key, fields)
  for field, n in pairs(fields) do
    redis.call('HINCRBY', key, field, n)
  end
end

add(totals, batch.totals)
add(late, batch.late)
for _, tally in ipairs(batch.tallies) do
  add(KEYS[tally.totals], tally.fields)
  if tally.cells then
    local key = KEYS[tally.cells]
    if redis.call('STRLEN', key) == 0 then
      redis.call('SETRANGE', key, tally.cells_bytes - 1, '\0')
    end
    -- Lua can pass some 8000 values to one command; a cell takes four.
    for from = 1, #tally.cell_numbers, 1000 do
      local command = {}
      for i = from, math.min(from + 999, #tally.cell_numbers) do
        local n = #command
        command[n + 1] = 'INCRBY'
        command[n + 2] = 'i64'
        command[n + 3] = '#' .. tally.cell_numbers[i]
        command[n + 4] = tally.cell_counts[i]
      end
      redis.call('BITFIELD', key, unpack(command))
    end
  end
  for _, part in ipairs(tally.appended) do
    -- The number first: a script that fails in between must leave no string that nothing removes.
    redis.call('HSET', KEYS[tally.totals], part.field, part.chunks)
    redis.call('APPEND', KEYS[part.key], ARGV[part.data])
  end
end

redis.call('HSET', state, 'offset', batch.next)
redis.call('HDEL', state, 'applying')
return {'applied'}
