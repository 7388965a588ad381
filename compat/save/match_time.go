package save

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/nft/xt"
)

// timeText returns the text of the match time.
func (r *moduleReader) timeText() (text string, ok bool) {
	t := xt.NewTime()
	t.KernelTimeZone, t.Contiguous = r.option("--kerneltz") != nil, r.option("--contiguous") != nil
	ok = r.onlyNegates("--monthdays", "--weekdays")
	for _, o := range r.options {
		valid, text := true, o.values[0].text
		switch o.name {
		case "--datestart":
			t.DateStart, valid = date(text)
		case "--datestop":
			t.DateStop, valid = date(text)
		case "--timestart":
			t.TimeStart, valid = timeOfDay(text)
		case "--timestop":
			t.TimeStop, valid = timeOfDay(text)
		case "--monthdays":
			t.MonthDays, valid = days(text, 31, nil)
			if o.not {
				t.MonthDays ^= xt.NewTime().MonthDays
			}
		case "--weekdays":
			var bits uint32
			bits, valid = days(text, 7, []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"})
			if t.WeekDays = uint8(bits); o.not {
				t.WeekDays ^= xt.NewTime().WeekDays
			}
		case "--kerneltz", "--contiguous":
		default:
			valid = false
		}
		ok = ok && valid
	}
	return t.String(), ok
}

// date parses a date with an optional time, such as "2026-01-31T04:05:06", in UTC.
func date(text string) (seconds uint32, ok bool) {
	for _, layout := range []string{
		"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02T15", "2006-01-02", "2006-01", "2006",
	} {
		if t, err := time.Parse(layout, text); err == nil {
			n := t.Unix()
			return uint32(n), n >= 0 && n <= math.MaxInt32
		}
	}
	return 0, false
}

// timeOfDay parses a time such as "08:30" or "08:30:15", and returns the number of seconds since
// midnight.
func timeOfDay(text string) (seconds uint32, ok bool) {
	for _, layout := range []string{"15:04:05", "15:04"} {
		if t, err := time.Parse(layout, text); err == nil {
			return uint32(t.Hour()*60*60 + t.Minute()*60 + t.Second()), true
		}
	}
	return 0, false
}

// days parses a list of days, and returns a bit for each day. A day is a number from 1 to last, or
// one of the names.
func days(text string, last int, names []string) (bits uint32, ok bool) {
	for day := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(day)
		if i := slices.Index(names, day); i >= 0 {
			n, err = i+1, nil
		}
		if err != nil || n < 1 || n > last {
			return 0, false
		}
		bits |= 1 << n
	}
	return bits, true
}
