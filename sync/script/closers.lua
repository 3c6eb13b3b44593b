-- closers.lua -- one engine closes each window of a family for all (TW_CLOSED_BY_ONE): who takes part, what each has drained, who is
-- chosen, and the names of the keys that were counted.
--
-- KEYS[1]  the family's engines (a hash): i:INSTANCE, "until number floor ends": when (ms) it is taken for dead, the number of its
--          last word, and which windows it holds up: all that end after `floor`, and those of the list; h, when any engine was last
--          heard; f, until then nobody is chosen; o:START, a window that the last engine told before its time, and when its keys die
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
-- Answers  {status, ms of TIME, how many others live, of read: the next cursor, names ...}
--          OK; WAIT others hold it up; LIST the names first; OTHER somebody else does it; YOU; AGAIN the same, and it was told before;
--          DONE it is closed already; LATE it is, without what one that came too late has counted
--          of come: START ... follow
--          NEW  it was here before and is not known any more: its word counts from the next one on. Nothing else was done
--          OLD  a word of before its last; CLASH another version. Nothing was done
--
-- Who asks, or lists, holds the window up from then on. Where he has not been through, and it is claimed or closed at that moment, the
-- figures of that closing lack what he has counted: it is closed once more, by him or by whoever else asks.
-- Always true: the first write goes by redis.call, so that Redis refuses all or nothing; saying it again changes nothing but times;
-- time in which nobody at all was heard ends nobody's life: Redis was away, not they.
local GAP_MS = 2500                      -- each engine says a word a second
local FRESH_MS = 1500                    -- first use: engines that live have come

if ARGV[1] ~= '1' then return {'CLASH', 0, 0} end
local verb, me, number, life = ARGV[2], 'i:' .. ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[6])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function text(n) return string.format('%.0f', n) end

local all, heard, from, members = redis.call('HGETALL', KEYS[1]), nil, 0, {}
for i = 1, #all, 2 do
  if all[i] == 'h' then heard = tonumber(all[i + 1])
  elseif all[i] == 'f' then from = tonumber(all[i + 1])
  else
    local till, said, floor, ends = string.match(all[i + 1], '^(%d+) (%d+) (%-?%d+) (%S+)$')
    if till then members[all[i]] = {tonumber(till), said, floor, ends} end
  end
end
local mine = members[me]
if mine and tonumber(mine[2]) >= number then return {'OLD', now, 0} end
members[me] = nil

if verb == 'leave' then
  redis.call('HDEL', KEYS[1], me)
  return {'OK', now, 0}
end

local set, gone, others = {'h', text(now)}, {}, 0
local pause = 0
if heard and now - heard > GAP_MS then pause = now - heard end
for field, member in pairs(members) do
  local till = member[1] + pause
  if till <= now then
    gone[#gone + 1] = field
    members[field] = nil
  else
    others = others + 1
    if pause ~= 0 then
      set[#set + 1] = field
      set[#set + 1] = text(till) .. ' ' .. member[2] .. ' ' .. member[3] .. ' ' .. member[4]
    end
  end
end
local forgotten = not mine and ARGV[5] == '1'
if forgotten then from = math.max(from, now + life)
elseif not heard then from = now + FRESH_MS end
set[#set + 1] = 'f'
set[#set + 1] = text(from)
set[#set + 1] = me
set[#set + 1] = text(now + life) .. ' ' .. ARGV[4] .. ' ' .. (forgotten and '-1 ,' or ARGV[7] .. ' ' .. ARGV[8])
redis.call('HSET', KEYS[1], unpack(set))
if #gone ~= 0 then redis.pcall('HDEL', KEYS[1], unpack(gone)) end
redis.pcall('PEXPIRE', KEYS[1], text(4 * life))
if forgotten then return {'NEW', now, others} end
if verb == 'word' then return {'OK', now, others} end
if verb == 'come' then
  local out, over = {'OK', now, others}, {}
  for i = 1, #all, 2 do
    local start = string.match(all[i], '^o:(%-?%d+)$')
    if start and tonumber(all[i + 1]) > now then out[#out + 1] = start elseif start then over[#over + 1] = all[i] end
  end
  if #over ~= 0 then redis.pcall('HDEL', KEYS[1], unpack(over)) end
  return out
end

local kind, who, till, marks = string.match(redis.call('GET', KEYS[2]) or '', '^(%a) (%x+) ?(%d*) ?([a+]*)$')
local is_mine = kind == 'c' and who == ARGV[3]
local again = kind == 'd' or kind == 't' or kind and string.find(marks, 'a', 1, true)
local late = kind and string.find(marks, '+', 1, true)
local function put(state)
  redis.call('SET', KEYS[2], state, 'PX', text(math.max(tonumber(ARGV[10]) - now, 4 * life)))
end
local function mark(told, more)
  return (told or more) and ' ' .. (told and 'a' or '') .. (more and '+' or '') or ''
end
local function drained_by_others()
  local last, listed = tonumber(ARGV[9]), ',' .. ARGV[9] .. ','
  for _, member in pairs(members) do
    if tonumber(member[3]) < last or string.find(member[4], listed, 1, true) then return false end
  end
  return true
end

-- A claim outlives its time while its engine lives: Redis may have been away when it was to be renewed, or the window closed. Not for
-- ever: it may have closed it with local figures instead
local function is_anothers()
  if kind ~= 'c' or is_mine then return false end
  local ends = tonumber(till)
  return ends > now or members['i:' .. who] ~= nil and ends + 4 * life > now
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
    redis.pcall('HSET', KEYS[1], 'o:' .. ARGV[11], ARGV[10])
    redis.pcall('PEXPIRE', KEYS[1], text(math.max(tonumber(ARGV[10]) - now, 4 * life)))
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
  redis.pcall('PEXPIREAT', KEYS[3], text(math.max(tonumber(ARGV[10]), now + 4 * life)))
  return {kind == 'd' and 'LATE' or 'OK', now, others}
end
if verb == 'last' then
  if others ~= 0 and kind ~= 'd' then return {'OTHER', now, others} end
  return {again and 'AGAIN' or 'YOU', now, others}
end
if verb == 'read' then
  if ARGV[12] == '1' and not is_mine then return {'OTHER', now, others} end
  if is_mine then put('c ' .. ARGV[3] .. ' ' .. text(now + life) .. mark(again, late)) end
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
put('c ' .. ARGV[3] .. ' ' .. text(now + life) .. mark(again, is_mine and late))
return {again and 'AGAIN' or 'YOU', now, others}
