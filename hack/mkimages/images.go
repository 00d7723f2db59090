package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// binary reads a program that must run without any library of its own image.
func binary(path string) (file, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return file{}, err
	}
	program, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return file{}, fmt.Errorf("%s is no ELF binary: %w", path, err)
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			return file{}, fmt.Errorf("%s is dynamically linked, and its image has no libraries", path)
		}
	}
	return file{mode: 0o755, content: b}, nil
}

// pauseImage is the sandbox image: one binary that waits.
func pauseImage(path string) (*image, error) {
	f, err := binary(path)
	if err != nil {
		return nil, err
	}
	f.path = "pause"
	return &image{
		files:  []file{f},
		config: v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535", WorkingDir: "/"},
	}, nil
}

// webImage is the image of a user's first pod.
func webImage(path string) (*image, error) {
	f, err := binary(path)
	if err != nil {
		return nil, err
	}
	f.path = "web"
	return &image{
		files: append(accounts(), f),
		config: v1.Config{
			Entrypoint:   []string{"/web"},
			User:         "65534:65534",
			WorkingDir:   "/",
			ExposedPorts: map[string]struct{}{"8080/tcp": {}},
		},
	}, nil
}

// busyboxImage is what tests and benchmarks run, and a first aid kit: Debian's
// static busybox with a link for every applet that it says it has.
func busyboxImage(path string) (*image, error) {
	f, err := binary(path)
	if err != nil {
		return nil, err
	}
	out, err := exec.Command(path, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w", path, err)
	}
	f.path = "bin/busybox"
	files := append(accounts(), f, file{path: "bin", mode: 0o755})
	for applet := range strings.FieldsSeq(string(out)) {
		if applet != "busybox" {
			files = append(files, file{path: "bin/" + applet, mode: 0o777, link: "busybox"})
		}
	}
	for _, dir := range []string{"dev", "home", "mnt", "proc", "sys", "usr", "usr/bin", "var", "var/log"} {
		files = append(files, file{path: dir, mode: 0o755})
	}
	files = append(files,
		file{path: "root", mode: 0o700},
		file{path: "usr/bin/env", mode: 0o777, link: "../../bin/busybox"})
	return &image{
		files: files,
		config: v1.Config{
			Cmd:        []string{"sh"},
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			WorkingDir: "/",
		},
	}, nil
}

// accounts are the few files that programs expect of a system.
func accounts() []file {
	return []file{
		{path: "etc", mode: 0o755},
		{path: "etc/passwd", mode: 0o644, content: []byte(
			"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n")},
		{path: "etc/group", mode: 0o644, content: []byte("root:x:0:\nnogroup:x:65534:\n")},
		{path: "tmp", mode: 0o1777},
	}
}
