-- calls.lua -- the head of the scripts whose calls are numbered (strict, gcra, once, lock): reads the note of this lane
-- and keeps it. scripts/embed.py puts this text in front of theirs. See sync/ask/call_text.h.
--
-- KEYS[1]  the calls of one counter (a hash). For each lane, under its name: "number:nonce given second": its last
--          call, what that was given, and when by Redis's time. A script may add a fourth word. The hash lives at least
--          ten minutes after the last call (at most eleven), and so does each field
-- ARGV     1 name of the lane, 2 "number:nonce" of the call, 3 verb: "1" request, "2" repeated request, "0" cancel
-- Sets     now_s    Redis's time in whole seconds; time has it as text, with the microseconds
--          given    what this call was given before, a number; nil: it is not the noted call
--          is_stale a later call of this lane came already, or one of another life of this process
--
-- Always true: a store that takes no writes answers nothing: if nothing else is written, reply() makes a write that
-- changes nothing, and a replica replies READONLY. A cancel takes back all or nothing: before it changes a count, writes
-- that change nothing show that the rest is allowed. If one is refused, the same cancel comes again.
-- Costs: a command takes 0.4 to 0.8 us, a table or a function 0.1, each local that a function uses 0.04, and a text
-- that becomes a number 0.1. So the usual case makes few of them, and functions use globals.
local call, pcall, match, format = redis.call, redis.pcall, string.match, string.format
local time = redis.call('TIME')
local now_s, has_written = time[1] + 0, false
local second, given, is_stale            -- second: when the noted call was made

local noted = call('HGET', KEYS[1], ARGV[1])
if noted then
  local number
  number, second = match(noted, '^(%d+)%S* %d+ (%d+)')
  if number and number - match(ARGV[2], '^%d+') >= 0 then
    local last, what = match(noted, '^(%S+) (%d+)')
    if last == ARGV[2] then given = what + 0 else is_stale = true end
  end
end

if ARGV[3] == '0' then
  call('HDEL', KEYS[1], '')              -- Redis refuses no later write of this script for want of memory
  if given then call('HSET', KEYS[1], ARGV[1], noted) end
end

local function reply(...)
  if not has_written then redis.call('HDEL', KEYS[1], '') end
  return {ARGV[2], ...}
end

-- Writes the note of this call. Returns 1 if this lane had none. Each lane renews the life of the hash once a minute.
-- From time to time, a new field removes some of the notes that are older than their lifetime: each process adds a
-- field, and the hash of a counter in use would grow for ever.
local function note(what, moment)
  local is_new = redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. what .. ' ' .. time[1] .. (moment or ''))
  has_written = true
  if second and now_s - second <= now_s % 60 then return is_new end
  redis.pcall('PEXPIRE', KEYS[1], 660000)
  if is_new == 0 or time[2] % 8 ~= 0 then return is_new end
  local page = redis.pcall('HSCAN', KEYS[1], time[2], 'COUNT', 100)[2] or {}
  for i = 1, #page, 2 do
    local at = string.match(page[i + 1], '^%S+ %d+ (%d+)')
    if at and now_s - at > 600 then redis.pcall('HDEL', KEYS[1], page[i]) end
  end
  return is_new
end

