/* line_time.c -- times as logs write them:
 *
 *     17/May/2015:10:05:03 +0000             web servers, also with .123 or .123456 behind the seconds
 *     2015-05-17T10:05:03.123456+02:00       ISO 8601 and RFC 3339; a space in place of T, a comma in place of the
 *     2015-05-17 10:05                       point, no seconds; Z, +02, +0200 or no offset (then the caller's)
 *     1431857103.123, 1431857103123 ...      Unix seconds; also milli-, micro- and nanoseconds, by their size
 *     1.431857103123e9                       the same, as some loggers write numbers
 *     17/May/2015:10:05:03.655               HAProxy, without an offset
 *
 * Always true: a time that is read is a moment of the years 1 to 9999 of the calendar. Second 60 is a leap second and
 * belongs to the next minute, as always with Unix time. Digits finer than a millisecond are cut off. */
#include "tools/count/line_rule.h"

#define WEB_SIZE 26                      /* 17/May/2015:10:05:03 +0000 */
#define WEB_CLOCK_SIZE 20                /* without its offset */
#define WEB_OFFSET_SIZE 6                /* with the space before it */
#define MS_SIZE 4                        /* .123 */
#define UNIX_S_LEAST UINT64_C(100000000) /* 1973; a smaller number is a duration, or some other number */
#define DIGITS_MAX 19                    /* nanoseconds; they fit into 64 bits */

/* ---- the calendar ---- */

/* Days since 1970-01-01. A year begins in March here, so the leap day is its last day. 400 years repeat. */
static int64_t days_from_civil(int64_t year, unsigned month, unsigned day) {
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    int64_t year_of_era = y - era * 400;
    int64_t day_of_year = (153 * (int64_t)(month > 2 ? month - 3 : month + 9) + 2) / 5 + (int64_t)day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468; /* 719468 days from 0000-03-01 to 1970-01-01 */
}

int64_t line_unix_s(int64_t year, unsigned month, unsigned day, unsigned hour, unsigned minute, unsigned second) {
    return days_from_civil(year, month, day) * 86400 + (int64_t)(hour * 3600 + minute * 60 + second);
}

bool line_date_is_valid(unsigned year, unsigned month, unsigned day) {
    static const unsigned char days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (month < 1 || month > 12 || day < 1) return false;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return day <= days[month - 1] + (unsigned)(month == 2 && leap);
}

/* ---- parts of seconds ---- */

/* .123456 or ,123 with any number of digits, of which the first three count. */
static const char *fraction_read(const char *at, const char *end, int *ms) {
    int scale = 100;
    *ms = 0;
    if (at == end || (*at != '.' && *at != ',')) return at;
    const char *first = ++at;
    for (; at < end && *at >= '0' && *at <= '9'; at++, scale /= 10) *ms += (*at - '0') * scale;
    return at == first ? NULL : at;
}

/* ---- web servers ---- */

static unsigned month_read(const char *name) {
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    for (unsigned month = 0; month < 12; month++) {
        if (memcmp(names + (size_t)month * 3, name, 3) == 0) return month + 1;
    }
    return 0;
}

/* Reads the offset in seconds east of UTC, from "+0000". */
static bool web_offset_read(const char *text, int64_t *offset_s) {
    if (text[0] != '+' && text[0] != '-') return false;
    int hours = line_digits(text + 1, 2), minutes = line_digits(text + 3, 2);
    if (hours < 0 || hours > 14 || minutes < 0 || minutes > 59) return false;
    int seconds = hours * 3600 + minutes * 60;
    *offset_s = text[0] == '-' ? -seconds : seconds;
    return true;
}

/* Reads 17/May/2015:10:05:03 into seconds, as if it were UTC. */
static bool web_clock_read(const char *text, int64_t *unix_s) {
    if (text[2] != '/' || text[6] != '/' || text[11] != ':' || text[14] != ':' || text[17] != ':') return false;
    int day = line_digits(text, 2), year = line_digits(text + 7, 4);
    int hour = line_digits(text + 12, 2), minute = line_digits(text + 15, 2), second = line_digits(text + 18, 2);
    unsigned month = month_read(text + 3);
    if (day < 0 || year < 0 || !line_date_is_valid((unsigned)year, month, (unsigned)day)) return false;
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60) return false;
    *unix_s = line_unix_s(year, month, (unsigned)day, (unsigned)hour, (unsigned)minute, (unsigned)second);
    return true;
}

bool line_time_web(const char *text, size_t size, int64_t *unix_ms) {
    int64_t unix_s, offset_s;
    const char *end = text + size, *offset = text + WEB_CLOCK_SIZE;
    int ms = 0;
    if (size < WEB_SIZE || !web_clock_read(text, &unix_s)) return false;
    if (size > WEB_SIZE) offset = fraction_read(offset, end, &ms);
    if (offset == NULL || end - offset != WEB_OFFSET_SIZE || *offset != ' ' || !web_offset_read(offset + 1, &offset_s))
        return false;
    *unix_ms = (unix_s - offset_s) * 1000 + ms;
    return true;
}

bool line_time_proxy(const char *text, size_t size, int64_t utc_offset_ms, int64_t *unix_ms) {
    int64_t unix_s;
    int ms;
    if (size != WEB_CLOCK_SIZE + MS_SIZE || text[WEB_CLOCK_SIZE] != '.' || !web_clock_read(text, &unix_s)) return false;
    if ((ms = line_digits(text + WEB_CLOCK_SIZE + 1, 3)) < 0) return false;
    *unix_ms = unix_s * 1000 + ms - utc_offset_ms;
    return true;
}

/* ---- ISO 8601 ---- */

/* Two digits at `at`, at most `high`; -1 means that they are not there. */
static int two_read(const char *at, const char *end, int high) {
    int value = end - at < 2 ? -1 : line_digits(at, 2);
    return value > high ? -1 : value;
}

/* Reads Z, +02, +0200 or +02:00. An empty text leaves `*offset_ms` as it is. No text may follow. */
static bool iso_offset_read(const char *at, const char *end, int64_t *offset_ms) {
    if (at < end && *at == ' ') at++; /* "2015-05-17 10:05:03 +0200" */
    if (at == end) return true;
    char sign = *at++;
    if (sign == 'Z' || sign == 'z') *offset_ms = 0;
    if (sign == 'Z' || sign == 'z') return at == end;
    if (sign != '+' && sign != '-') return false;
    int hours = two_read(at, end, 14), minutes = 0;
    if (hours < 0) return false;
    at += 2;
    if (at < end && *at == ':') at++;
    if (at < end && (minutes = two_read(at, end, 59)) < 0) return false;
    if (at < end) at += 2;
    *offset_ms = (int64_t)(hours * 60 + minutes) * (sign == '-' ? -60000 : 60000);
    return at == end;
}

/* Reads 10:05, 10:05:03 or 10:05:03.123. Returns where it ends, or NULL. */
static const char *clock_read(const char *at, const char *end, int64_t *clock_ms) {
    int hour = two_read(at, end, 23), minute, second = 0, ms = 0;
    if (hour < 0 || end - at < 5 || at[2] != ':' || (minute = two_read(at + 3, end, 59)) < 0) return NULL;
    at += 5;
    if (at < end && *at == ':') {
        if ((second = two_read(at + 1, end, 60)) < 0) return NULL;
        at = fraction_read(at + 3, end, &ms);
    }
    *clock_ms = (int64_t)(hour * 3600 + minute * 60 + second) * 1000 + ms;
    return at;
}

bool line_time_of_day(const char *text, size_t size, int64_t *ms) {
    return size >= 8 && text[5] == ':' && clock_read(text, text + size, ms) == text + size;
}

bool line_time_iso(const char *text, size_t size, int64_t utc_offset_ms, int64_t *unix_ms) {
    const char *end = text + size, *at = text + 10;
    int64_t clock_ms = 0;
    if (size < 10 || text[4] != '-' || text[7] != '-') return false;
    int year = line_digits(text, 4), month = line_digits(text + 5, 2), day = line_digits(text + 8, 2);
    if (year < 1 || month < 0 || day < 0 || !line_date_is_valid((unsigned)year, (unsigned)month, (unsigned)day))
        return false;
    if (at < end && (*at == 'T' || *at == 't' || *at == ' ')) {
        at = clock_read(at + 1, end, &clock_ms);
        if (at == NULL) return false;
    }
    if (!iso_offset_read(at, end, &utc_offset_ms)) return false;
    *unix_ms = line_unix_s(year, (unsigned)month, (unsigned)day, 0, 0, 0) * 1000 + clock_ms - utc_offset_ms;
    return true;
}

/* ---- Unix time ---- */

static bool unix_read(const char *text, size_t size, int64_t *unix_ms) {
    uint64_t value = 0;
    size_t at = 0;
    int ms;
    for (; at < size && at <= DIGITS_MAX && text[at] >= '0' && text[at] <= '9'; at++)
        value = value * 10 + (uint64_t)(text[at] - '0');
    if (at == 0 || at > DIGITS_MAX || value < UNIX_S_LEAST) return false;
    if (fraction_read(text + at, text + size, &ms) != text + size) return false;
    if (value < UNIX_S_LEAST * 1000) {
        *unix_ms = (int64_t)value * 1000 + ms;
    } else if (value < UNIX_S_LEAST * 1000000) {
        *unix_ms = (int64_t)value;
    } else {
        *unix_ms = (int64_t)(value / (value < UNIX_S_LEAST * 1000000000 ? 1000 : 1000000));
    }
    return true;
}

/* Reads Unix seconds with an exponent. */
static bool exponent_read(const char *text, size_t size, int64_t *unix_ms) {
    double seconds;
    if (memchr(text, 'e', size) == NULL && memchr(text, 'E', size) == NULL) return false;
    if (!line_number_read(text, size, &seconds) || !(seconds >= UNIX_S_LEAST) || !(seconds < UNIX_S_LEAST * 1000.0))
        return false;
    *unix_ms = (int64_t)(seconds * 1000 + 0.5 / 1024); /* finer parts are cut off, except for a double's error */
    return true;
}

bool line_time_read(const char *text, size_t size, int64_t utc_offset_ms, int64_t *unix_ms) {
    if (size > 10 && text[4] == '-') return line_time_iso(text, size, utc_offset_ms, unix_ms);
    return unix_read(text, size, unix_ms) || line_time_web(text, size, unix_ms) ||
           line_time_iso(text, size, utc_offset_ms, unix_ms) || exponent_read(text, size, unix_ms);
}
