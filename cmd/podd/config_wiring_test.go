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

// TestEveryConfigFieldIsNamedByWhoWiresIt: config's own tests check that a field
// which is called honoured reaches Config; this one, that the code here names each
// of Config's fields. What that code does with it is tested in the package that
// honours it.
func TestEveryConfigFieldIsNamedByWhoWiresIt(t *testing.T) {
	inACluster := map[string]bool{"CertDir": true}
	var files []string
	for _, dir := range []string{".", "../../node", "../../node/*"} {
		found, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
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
			t.Errorf("Config.%s is not read: wire it, or mark its field as ignored in config.Fields and remove it from Config", f.Name)
		}
	}
}
