// Package mask hides what is secret in what podd shows: in logs, events, errors
// and answers.
package mask

import "net/url"

// Value stands where a secret is not shown.
const Value = "<masked>"

// URL is a URL as people may see it: without its password, and without its
// query, which is where tokens are given. One that cannot be read is not shown
// at all.
func URL(text string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil {
		return Value
	}
	if u.RawQuery != "" {
		u.RawQuery = Value
	}
	u.Fragment, u.RawFragment = "", ""
	return u.Redacted()
}
