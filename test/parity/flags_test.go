package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"podd/config"
)

// kubeletFlag is a line of the kubelet's help: name, and the word for its value, which a flag
// that is true or false has not.
var kubeletFlag = regexp.MustCompile(`(?m)^ +(?:-[a-z], )?--([a-z0-9-]+)(?:\[=[^\]]*\])?( [^ ]+)? {2,}`)

// given is what to try a flag with, by the word of the kubelet's help for its value.
var given = map[string]string{
	"": "true", "string": "x", "strings": "x", "int": "7", "int32": "7", "duration": "7s", "ip": "127.0.0.1", "mapStringString": "a=b",
	"quantity": "1Ki", "reserved-memory": "0:memory=1Gi", "[]v1.Taint": "a=b:NoSchedule", "colonSeparatedMultimapStringString": "a:b",
	"mapStringBool": "a=true", "pattern=N,...": "a=1", "Level": "2", "RuntimeDefault": "true", "<key1=value1,key2=value2>": "a=b",
}

// special are flags of which other values make sense than of their kind.
var special = map[string]string{
	"cpu-cfs-quota-period": "7ms", "eviction-hard": "memory.available<1Mi", "eviction-soft": "memory.available<1Mi", "kube-reserved": "cpu=7m", "system-reserved": "cpu=7m",
	"pod-max-pids": "7", "tls-min-version": "VersionTLS12", "logging-format": "text", "cloud-provider": "external",
}

// otherwise are flags that podd has, and of which it honours one value only.
var otherwise = map[string]bool{"maximum-dead-containers": true, "maximum-dead-containers-per-container": true, "minimum-container-ttl-duration": true}

// TestEveryFlagOfTheKubeletIsTaken asks upstream's binary for its flags: under the kubelet's
// name podd takes each, as its value or, with a warning that names it, without effect.
func TestEveryFlagOfTheKubeletIsTaken(t *testing.T) {
	kubelet := os.Getenv("PODD_PARITY_KUBELET")
	if kubelet == "" {
		t.Skip("needs upstream's kubelet: make parity-ci builds it")
	}
	help, err := exec.Command(kubelet, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	flags := kubeletFlag.FindAllStringSubmatch(string(help), -1)
	if want := strings.Count(string(help), "\n      --") + strings.Count(string(help), ", --"); len(flags) < 130 || len(flags) > want {
		t.Fatalf("%d flags were read, of at most %d", len(flags), want)
	}
	for _, f := range flags {
		name, kind := f[1], strings.TrimSpace(f[2])
		if name == "help" || name == "version" { // of which cmd/podd is told before it parses
			continue
		}
		var ours config.Flags
		fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
		ours.Bind(fs)
		ours.BindKubelet(fs)
		flag := fs.Lookup(name)
		if flag == nil {
			t.Errorf("--%s (%s) is not taken", name, kind)
			continue
		}
		if alone := flag.NoOptDefVal != ""; alone != (kind == "" || kind == "RuntimeDefault") {
			t.Errorf("--%s (%s): without a value: %v", name, kind, alone)
		}
		value, ok := given[kind]
		if v, has := special[name]; has {
			value, ok = v, true
		}
		if !ok {
			t.Errorf("--%s: no value of kind %q to try it with", name, kind)
			continue
		}
		if err := fs.Parse([]string{"--" + name + "=" + value}); err != nil {
			t.Errorf("--%s=%s: %v", name, value, err)
			continue
		}
		if !flag.Hidden && !otherwise[name] {
			continue
		}
		// A hidden one is without effect, and says so. Load may find fault with this machine.
		fs = pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
		ours = config.Flags{}
		ours.Bind(fs)
		ours.BindKubelet(fs)
		if err := fs.Parse([]string{"--hostname-override=node", "--" + name + "=" + value}); err != nil {
			t.Fatal(err)
		}
		cfg, err := ours.Load()
		if err != nil {
			t.Errorf("--%s=%s: %v", name, value, err)
			continue
		}
		if !strings.Contains(strings.Join(cfg.Warnings, "\n"), "--"+name+": has no effect: ") {
			t.Errorf("--%s is without effect and without a warning: %q", name, cfg.Warnings)
		}
	}
}
