package config

import (
	"testing"

	"github.com/spf13/pflag"
)

func TestFlagsAreShownWithoutSecrets(t *testing.T) {
	var f Flags
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.Bind(fs)
	if err := fs.Parse([]string{"--manifest-url=https://u:secret@h/p?token=secret", "--manifest-url-header=Authorization:secret", "--v=4", "--max-pods=7"}); err != nil {
		t.Fatal(err)
	}
	got := FlagValues(fs)
	for name, want := range map[string]string{"manifest-url": "https://u:xxxxx@h/p?<masked>", "manifest-url-header": "<masked>", "v": "4", "max-pods": "7", "kubeconfig": ""} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s: got %q (%t), want %q", name, value, ok, want)
		}
	}
}
