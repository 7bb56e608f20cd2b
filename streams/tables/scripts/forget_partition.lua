-- Forget a partition's counts and offset together, so that it is counted again from the log.
--
-- KEYS  1 state · 2 the token of the last rebuild · then every other key of the partition
-- ARGV  1 the offset that was read ("" none) · 2 the new token
-- Returns 1, or 0 when the offset has moved since: something was added that KEYS may not name.

if (redis.call('HGET', KEYS[1], 'offset') or '') ~= ARGV[1] then return 0 end
for _, key in ipairs(KEYS) do
  redis.call('UNLINK', key)
end
-- In the same step, so that no reader sees the new token with the old counts or the reverse.
redis.call('SET', KEYS[2], ARGV[2])
return 1
