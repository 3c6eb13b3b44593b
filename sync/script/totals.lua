-- totals.lua -- reads what Redis holds of a hash or of a sorted set, for tw_fetch_fields(), tw_fetch_top() and
-- tw_fetch_rank(). It changes nothing, so a call that is repeated does no harm.
--
-- KEYS[1]  the hash of a subject; or the sorted set of a window
-- ARGV     1..3 of the connection (sync/ask/call_text.h), only the number is used; 4 what: fields, top, rank;
--          of fields: 5 HSCAN's cursor
--          of top: 5 the first place, from 0; 6 how many
--          of rank: 5 the member
-- Replies  {number, status, ...}: OK; BAD: the key has another type, with Redis's words. After OK
--          fields  the store's history; the next cursor; the page
--          top     the place behind the page, -1: there are no more; the page
--          rank    the place, from 0, and the score; -1 and 0: there is no such member
--          A page is names and totals in turn, each as "size:text".
--
-- Always true: a page leaves out what is too long for a count of ours (a name, a total), and ends where its text has
-- PAGE_BYTES. A store that takes no writes answers nothing: a write that changes nothing comes last, and a replica
-- replies READONLY. NOBODY is too long to be a field or a member of ours.
local NAME_BYTES, TOTAL_BYTES, FIELDS, PAGE_BYTES = 1024, 20, 256, 900000
local NOBODY = string.rep('-', NAME_BYTES + 1)
local key, what = KEYS[1], ARGV[4]

-- The reply, or nil and why there is none. An error that is not of the key ends the script, as redis.call() does.
local function ask(...)
  local told = redis.pcall(...)
  if type(told) ~= 'table' or not told.err then return told end
  if string.find(told.err, 'WRONGTYPE', 1, true) then return nil, told.err end
  return redis.call(...)
end

local function say(...)
  ask(what == 'fields' and 'HDEL' or 'ZREM', key, NOBODY)
  return {ARGV[2], ...}
end

local function refuse(why)
  return say('BAD', string.sub(why, 1, 70))
end

-- A score as digits. Redis from 7.2 writes 5e+15 for a number whose last digits are zeros, from 2^52 on.
local function digits_of(score)
  if not string.find(score, 'e+', 1, true) then return score end
  return string.format('%.0f', tonumber(score))
end

-- The text of a list of names and totals; and how many of them it has looked at. Strings are joined once, at the end:
-- each that Lua makes costs as much as all else.
local function page_of(list)
  local out, bytes, used, sizes = {}, 0, 0, {}
  for i = 1, #list, 2 do
    local name, total = list[i], list[i + 1]
    if what == 'top' then total = digits_of(total) end
    if bytes > PAGE_BYTES then return table.concat(out), (i - 1) / 2 end
    local of_name, of_total = #name, #total
    if of_name <= NAME_BYTES and of_total <= TOTAL_BYTES then
      sizes[of_name] = sizes[of_name] or of_name .. ':'
      sizes[of_total] = sizes[of_total] or of_total .. ':'
      out[used + 1], out[used + 2], out[used + 3], out[used + 4] = sizes[of_name], name, sizes[of_total], total
      used = used + 4
      bytes = bytes + of_name + of_total + 6
    end
  end
  return table.concat(out), #list / 2
end

if what == 'fields' then
  local scanned, why = ask('HSCAN', key, ARGV[5], 'COUNT', FIELDS)
  if not scanned then return refuse(why) end
  local page, looked = page_of(scanned[2])
  if looked < #scanned[2] / 2 then return refuse('HSCAN gives too many fields at once') end
  local info = redis.pcall('INFO', 'replication')
  local history = type(info) == 'string' and string.match(info, 'master_replid:(%x+)') or ''
  return say('OK', history, scanned[1], page)
end

if what == 'top' then
  local first, wanted = tonumber(ARGV[5]), tonumber(ARGV[6])
  local list, why = ask('ZREVRANGE', key, first, first + wanted - 1, 'WITHSCORES')
  if not list then return refuse(why) end
  local page, looked = page_of(list)
  local is_last = looked == #list / 2 and looked < wanted
  return say('OK', is_last and '-1' or string.format('%.0f', first + looked), page)
end

local rank, why = ask('ZREVRANK', key, ARGV[5])
if why then return refuse(why) end
return say('OK', rank and tostring(rank) or '-1', rank and digits_of(redis.call('ZSCORE', key, ARGV[5])) or '0')
