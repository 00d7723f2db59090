package mask

import "testing"

func TestURL(t *testing.T) {
	for in, want := range map[string]string{
		"":                                    "",
		"http://cfg.test/pods":                "http://cfg.test/pods",
		"http://cfg.test/pods?token=geheim":   "http://cfg.test/pods?<masked>",
		"http://cfg.test/pods?geheim":         "http://cfg.test/pods?<masked>",
		"http://cfg.test?a=1&b=geheim#geheim": "http://cfg.test?<masked>",
		"https://node:geheim@cfg.test/pods?t=geheim": "https://node:xxxxx@cfg.test/pods?<masked>",
		"/healthz?token=geheim":                      "/healthz?<masked>",
		"http://node:geheim@%zz/":                    "<masked>",
	} {
		if got := URL(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}
