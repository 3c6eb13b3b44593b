-- live.lua -- the registry of live engines: each says every second that it is there, and learns how many are.
--
-- KEYS[1]  the registry (a sorted set): instances by when (ms) they are taken for dead; ends a minute after the last word
-- ARGV     1 version, 2 instance, 3 how long (ms) this word is good for
-- Answers  {OK, ms of TIME, how many live}; CLASH another version, nothing was done
--
-- Always true: saying it again changes nothing but times; the first write goes by redis.call, so that Redis refuses all or
-- nothing.
local FORGET_MS = 60000

if ARGV[1] ~= '1' then return {'CLASH', 0, 0} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[3])), ARGV[2])
redis.pcall('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
redis.pcall('PEXPIRE', KEYS[1], FORGET_MS)
return {'OK', now, redis.call('ZCARD', KEYS[1])}
