package podstore

import (
	"os"
	"testing"
)

// testdata/earlier has what podd 3e2131e has written of an apiserver's pods.
func TestAPodOfAnEarlierPoddIsRead(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile("testdata/earlier/u1.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/u1.json", text, 0o600); err != nil { // git has no such mode
		t.Fatal(err)
	}
	found, damaged := Store{Dir: dir, MaxBytes: 1 << 20}.ReadAll()
	if len(damaged) > 0 || len(found) != 1 || found[0].Origin != "https://10.0.0.1:6443" || found[0].Pod.Name != "web" || found[0].Pod.Spec.NodeName != "n1" {
		t.Errorf("got %+v, %+v", found, damaged)
	}
}
