-- close_election.lua -- one engine closes each window of a family for all (TW_CLOSED_BY_ONE): who takes part, what each has drained, who is
-- chosen, and the names of the keys that were counted.
--
-- KEYS[1]  the family's engines (a hash): i:INSTANCE, "until number floor ends": when (ms) it is taken for dead, the number of its
--          last word, and which windows it holds up: all that end after `floor`, and those of the list; h, when any engine was last
--          heard; f, until then nobody is chosen; p, for how long (ms) nobody at all was heard, which is no time for those words;
--          u:0 .. u:6, "end i:INSTANCE", who was seen to hold a window up; k, how far this was tidied; o:START, a window that the last
--          engine told before its time, and when its keys die; m, there are such windows
-- KEYS[2]  the window (a string): "c INSTANCE until", claimed; "p 0", claimed no more; "d INSTANCE", closed; "t INSTANCE", told before its
--          time; behind that " a": it was told before, and " +": an engine came when it was claimed or closed, and holds it up
-- KEYS[3]  the names of its keys (a set), until it is closed
-- ARGV     1 version, 2 verb, 3 instance, 4 number, rising with each word, 5 "1": it has been here before, 6 life (ms) of a word and of
--          a claim, 7 floor, 8 ends: ",end,end,"; of a window: 9 its end, 10 when its keys die, 11.. by verb
--            word   nothing more; it is all that a window is not needed for
--            come   the first word of an engine: it is told which windows the last one before it has told before their time
--            leave  it holds nothing up any more, and goes
--            list   11 "1": it has been through: it has held the window up and does so no more; 12.. names
--            ask    11 "1": its names are listed, 12 "1": it has been through. Claims the window, and renews the claim
--            last   is anybody else there?
--            read   11 cursor, 12 "1": only who has claimed it may
--            pass   it is claimed no more: its hook will not have it, another engine's may
--            part   it was told before its time; 11 its start
--            done   it was closed, surely; 11 its start
-- Answers  {status, ms of TIME, how many others live (roughly, where they are many), of read: the next cursor, names ...; of word: how
--          often (ms) it is to be said}
--          OK; WAIT others hold it up; LIST the names first; OTHER somebody else does it; YOU; AGAIN the same, and it was told before;
--          DONE it is closed already; LATE it is, without what one that came too late has counted
--          of come: START ... follow
--          NEW  it was here before and is not known any more: its word counts from the next one on. Nothing else was done
--          OLD  a word of before its last; CLASH another version. Nothing was done
--
-- Who asks, or lists, holds the window up from then on. Where he has not been through, and it is claimed or closed at that moment, the
-- figures of that closing lack what he has counted: it is closed once more, by him or by whoever else asks.
-- Always true: the first write goes by redis.call, so that Redis refuses all or nothing; saying it again changes nothing but times;
-- time in which nobody at all was heard ends nobody's life: Redis was away, not they. What a word costs does not grow with the engines;
-- all are looked at when a window is asked for whose last known holder holds it up no more.
local GAP_MS = 2500                      -- each engine says a word a second, and in a crowd as many do
local EVERY_MS, EVERY_MORE_MS = 1000, 0.7 -- how often: so often, or so many ms for each that there is
local FEW = 64                           -- of so many all are counted
local FRESH_MS = 1500                    -- first use: engines that live have come

if ARGV[1] ~= '1' then return {'CLASH', 0, 0} end
local verb, me, number, ttl = ARGV[2], 'i:' .. ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[6])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function text(n) return string.format('%.0f', n) end

local function member_of(value)
  local till, number_sent, floor, ends = string.match(value or '', '^(%d+) (%d+) (%-?%d+) (%S+)$')
  return till and {tonumber(till), number_sent, floor, ends}
end
local values = redis.call('HMGET', KEYS[1], me, 'h', 'f', 'p', 'k', 'm')
local last_call, from, paused = tonumber(values[2] or ''), tonumber(values[3] or '0'), tonumber(values[4] or '0')
local mine = member_of(values[1])
if mine and tonumber(mine[2]) >= number then return {'OLD', now, 0} end

if verb == 'leave' then
  redis.call('HDEL', KEYS[1], me)
  return {'OK', now, 0}
end

local size = redis.call('HLEN', KEYS[1])
local every = math.max(EVERY_MS, math.floor(EVERY_MORE_MS * size))
if every > EVERY_MS then ttl = math.max(ttl, 4 * every) end
if last_call and now - last_call > GAP_MS then paused = paused + now - last_call end
local clock = now - paused               -- by which words are good
local forgotten = not mine and ARGV[5] == '1'
if forgotten then from = math.max(from, now + ttl)
elseif not last_call then from = now + FRESH_MS end
redis.call('HSET', KEYS[1], 'h', text(now), 'f', text(from), 'p', text(paused), me,
  text(clock + ttl) .. ' ' .. ARGV[4] .. ' ' .. (forgotten and '-1 ,' or ARGV[7] .. ' ' .. ARGV[8]))
redis.pcall('PEXPIRE', KEYS[1], text(4 * ttl))

-- The others: one of them, or nil if it does not live.
local function member_alive(value)
  local member = member_of(value)
  return member and member[1] > clock and member or nil
end
local members = setmetatable({}, {__index = function(_, field) return member_alive(redis.call('HMGET', KEYS[1], field)[1]) end})
local function look_at(fields, see)      -- true once `see` has said so
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 2) == 'i:' and fields[i] ~= me and see(fields[i], fields[i + 1]) then return true end
  end
  return false
end
if not last_call or math.floor(now / 1000) ~= math.floor(last_call / 1000) then -- some, once a second: who is dead goes
  local page = redis.pcall('HSCAN', KEYS[1], values[5] or '0', 'COUNT', '64')
  if not page.err then
    look_at(page[2], function(field, value)
      if not member_alive(value) then redis.pcall('HDEL', KEYS[1], field) end
    end)
    redis.call('HSET', KEYS[1], 'k', page[1])
  end
end
if forgotten then return {'NEW', now, size} end
if verb == 'word' then return {'OK', now, size, every} end
if verb == 'come' then
  local out, over, all = {'OK', now, size}, {}, values[6] and redis.call('HGETALL', KEYS[1]) or {}
  for i = 1, #all, 2 do
    local start = string.match(all[i], '^o:(%-?%d+)$')
    if start and tonumber(all[i + 1]) > now then out[#out + 1] = start elseif start then over[#over + 1] = all[i] end
  end
  if #out == 3 then over[#over + 1] = 'm' end
  if #over ~= 0 then redis.pcall('HDEL', KEYS[1], unpack(over)) end
  return out
end

local others = size
if size <= FEW then
  others = 0
  look_at(redis.call('HGETALL', KEYS[1]), function(_, value) others = others + (member_alive(value) and 1 or 0) end)
end

local kind, who, till, marks = string.match(redis.call('GET', KEYS[2]) or '', '^(%a) (%x+) ?(%d*) ?([a+]*)$')
local is_mine = kind == 'c' and who == ARGV[3]
local again = kind == 'd' or kind == 't' or kind and string.find(marks, 'a', 1, true)
local late = kind and string.find(marks, '+', 1, true)
local function put(state)
  redis.call('SET', KEYS[2], state, 'PX', text(math.max(tonumber(ARGV[10]) - now, 4 * ttl)))
end
local function mark(is_repeat, more)
  return (is_repeat or more) and ' ' .. (is_repeat and 'a' or '') .. (more and '+' or '') or ''
end
local function drained_by_others()
  local last, listed = tonumber(ARGV[9]), ',' .. ARGV[9] .. ','
  local function holds(_, value)
    local member = member_alive(value)
    return member and (tonumber(member[3]) < last or string.find(member[4], listed, 1, true) ~= nil)
  end
  local slot = 'u:' .. math.floor(last / 1000) % 7
  local seen = string.match(redis.call('HMGET', KEYS[1], slot)[1] or '', '^' .. ARGV[9] .. ' (%S+)$')
  if seen and seen ~= me and holds(seen, redis.call('HMGET', KEYS[1], seen)[1]) then return false end
  local function note(field, value)
    if not holds(field, value) then return false end
    redis.call('HSET', KEYS[1], slot, ARGV[9] .. ' ' .. field)
    return true
  end
  local cursor = '0'
  repeat
    local page = redis.call('HSCAN', KEYS[1], cursor, 'COUNT', '256')
    if look_at(page[2], note) then return false end
    cursor = page[1]
  until cursor == '0'
  return true
end

-- A claim outlives its time while its engine lives: Redis may have been away when it was to be renewed, or the window closed. Not for
-- ever: it may have closed it with local figures instead
local function is_anothers()
  if kind ~= 'c' or is_mine then return false end
  local ends = tonumber(till)
  return ends > now or members['i:' .. who] ~= nil and ends + 4 * ttl > now
end

if verb == 'done' then
  if is_anothers() then
    put('c ' .. who .. ' ' .. till .. mark(true, late)) -- which tells it again
    return {'DONE', now, others}
  end
  if kind ~= 'd' then put('d ' .. ARGV[3] .. mark(false, late)) end
  if not late then redis.pcall('UNLINK', KEYS[3]) end
  redis.pcall('HDEL', KEYS[1], 'o:' .. ARGV[11])
  return {late and 'LATE' or 'DONE', now, others}
end
if verb == 'part' then
  if kind ~= 'd' and kind ~= 'c' then
    put('t ' .. ARGV[3])
    redis.pcall('HSET', KEYS[1], 'o:' .. ARGV[11], ARGV[10], 'm', '1')
    redis.pcall('PEXPIRE', KEYS[1], text(math.max(tonumber(ARGV[10]) - now, 4 * ttl)))
  end
  return {'OK', now, others}
end
local comes = verb == 'list' and ARGV[11] ~= '1' or verb == 'ask' and ARGV[12] ~= '1'
if comes and not late and (kind == 'd' or kind == 'c' and not is_mine) then
  late = true
  put(kind .. ' ' .. who .. (till ~= '' and ' ' .. till or '') .. mark(again and kind == 'c', true))
end
if kind == 'd' and not late then return {'DONE', now, others} end
if verb == 'list' then
  redis.call('SADD', KEYS[3], unpack(ARGV, 12))
  redis.pcall('PEXPIREAT', KEYS[3], text(math.max(tonumber(ARGV[10]), now + 4 * ttl)))
  return {kind == 'd' and 'LATE' or 'OK', now, others}
end
if verb == 'last' then
  if others ~= 0 and kind ~= 'd' then return {'OTHER', now, others} end
  return {again and 'AGAIN' or 'YOU', now, others}
end
if verb == 'read' then
  if ARGV[12] == '1' and not is_mine then return {'OTHER', now, others} end
  if is_mine then put('c ' .. ARGV[3] .. ' ' .. text(now + ttl) .. mark(again, late)) end
  local page = redis.call('SSCAN', KEYS[3], ARGV[11], 'COUNT', '100')
  local out = {'YOU', now, others, page[1]}
  for i = 1, #page[2] do out[4 + i] = page[2][i] end
  return out
end
if verb == 'pass' then
  if is_mine then put('p 0' .. mark(again)) end
  return {'OK', now, others}
end
-- ask
if ARGV[11] ~= '1' and (others ~= 0 or redis.call('EXISTS', KEYS[3]) == 1) then return {'LIST', now, others} end
if is_anothers() then return {'OTHER', now, others} end
if not is_mine and (now < from or not drained_by_others()) then return {'WAIT', now, others} end
put('c ' .. ARGV[3] .. ' ' .. text(now + ttl) .. mark(again, is_mine and late))
return {again and 'AGAIN' or 'YOU', now, others}
