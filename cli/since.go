package cli

import "time"

// Since are the flags --since and --since-time of kubectl logs. The zero value selects all.
type Since struct {
	// Ago selects what is not older than this; 0 for all.
	Ago time.Duration
	// Time selects what is not older than this time, in RFC 3339; empty for all.
	Time string
}

// begin returns the time from which on something is selected; zero for all.
func (s Since) begin(now time.Time) (time.Time, error) {
	switch {
	case s.Ago != 0 && s.Time != "":
		return time.Time{}, UsageErrorf("at most one of --since and --since-time may be given")
	case s.Ago < 0:
		return time.Time{}, UsageErrorf("--since=%s: give a duration that is positive, such as 10m", s.Ago)
	case s.Ago > 0:
		return now.Add(-s.Ago), nil
	case s.Time != "":
		t, err := time.Parse(time.RFC3339, s.Time)
		if err != nil {
			return time.Time{}, UsageErrorf("--since-time=%s: give a time as in RFC 3339, such as %s", s.Time, "2006-01-02T15:04:05Z")
		}
		return t, nil
	}
	return time.Time{}, nil
}
