-- Forget a partition's counts and offset together, so that it is counted again from the log.
--
-- KEYS  1 state · 2 the mark of having been forgotten · then every other key of the partition
-- ARGV  1 the offset that was read ("" none) · 2 the new mark
-- Returns 1, or 0 when the offset has moved since: something was added that KEYS may not name.

if (redis.call('HGET', KEYS[1], 'offset') or '') ~= ARGV[1] then return 0 end
for _, key in ipairs(KEYS) do
  redis.call('UNLINK', key)
end
-- In the same step: nobody finds the new mark with the old counts, or the old mark without them.
redis.call('SET', KEYS[2], ARGV[2])
return 1
