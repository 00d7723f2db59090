package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"podd/config"
)

// TestEveryConfigFieldIsWired: what the table of fields calls honoured must be
// read by somebody. config's own tests see to it that such a field reaches
// Config; this one, that Config's fields do not end there.
func TestEveryConfigFieldIsWired(t *testing.T) {
	inACluster := map[string]bool{"CertDir": true}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(b)
	}
	for f := range reflect.TypeFor[config.Config]().Fields() {
		used := regexp.MustCompile(`\b(cfg|c)\.` + f.Name + `\b`).MatchString(source.String())
		masked := f.Name == "Kubelet" // shown through Masked
		if !used && !masked && !inACluster[f.Name] {
			t.Errorf("Config.%s is read by nobody: wire it, or call its field ignored in config.Fields and take it out of Config", f.Name)
		}
	}
}
