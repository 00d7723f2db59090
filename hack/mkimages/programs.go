package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"podd/test/cluster/suiteimages"
)

// programs are images of one static program each, by IMAGE=FILE: those of a control plane,
// for example. The program has the name of the image, in a directory of PATH. Tools of this
// machine that it calls follow after commas, and get the libraries that they need. A name of
// suiteimages.Programs, such as "etcd", stands for that image of upstream's tests.
type programs []named

func (p *programs) String() string { return "" }

func (p *programs) Set(text string) error {
	name, from, ok := strings.Cut(text, "=")
	if !ok {
		return errors.New("want IMAGE=FILE[,TOOL...]")
	}
	from, tools, _ := strings.Cut(from, ",")
	if of, known := suiteimages.Programs[name]; known {
		name = of
	}
	f, err := binary(from)
	if err != nil {
		return fmt.Errorf("image %s: %w", name, err)
	}
	repository, _, _ := strings.Cut(path.Base(name), ":")
	f.path = "usr/local/bin/" + repository
	files := append(accounts(), f)
	for tool := range strings.FieldsFuncSeq(tools, func(r rune) bool { return r == ',' }) {
		more, err := withLibraries(tool)
		if err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
		files = append(files, more...)
	}
	*p = append(*p, named{[]string{name}, &image{
		files: files,
		config: v1.Config{
			Entrypoint: []string{"/" + f.path}, Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, WorkingDir: "/",
		},
	}})
	return nil
}

// withLibraries returns a program and what its dynamic loader loads for it, at the places
// that they have here.
func withLibraries(program string) ([]file, error) {
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", program, err)
	}
	paths := []string{program}
	for word := range strings.FieldsSeq(string(out)) { // "name => path (address)", the loader without a name
		if path.IsAbs(word) {
			paths = append(paths, word)
		}
	}
	slices.Sort(paths)
	var files []file
	for _, p := range slices.Compact(paths) {
		content, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		files = append(files, file{path: strings.TrimPrefix(p, "/"), mode: 0o755, content: content})
	}
	return files, nil
}
