// Package mask hides confidential values in what podd shows: in logs, events, errors
// and responses.
package mask

import "net/url"

// Value replaces a confidential value.
const Value = "<masked>"

// URL returns a URL without its password and without its query, which may contain tokens. A
// URL that cannot be parsed is replaced.
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
