package file

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"podd/internal/pod"
	"podd/podconfig"
	"podd/podconfig/manifest"
)

// Verdict is Validate's result for a set of manifests. podd validate -o json prints its JSON
// form, which is a contract.
type Verdict struct {
	Files int `json:"files"`
	// Pods lists the valid pods by namespace/name. ConfigMaps, Secrets and claims are listed in
	// the same way; volumes only have a name.
	Pods       []string      `json:"pods"`
	ConfigMaps []string      `json:"configMaps"`
	Secrets    []string      `json:"secrets"`
	Volumes    []string      `json:"persistentVolumes,omitempty"`
	Claims     []string      `json:"persistentVolumeClaims,omitempty"`
	Drivers    []string      `json:"csiDrivers,omitempty"`
	Problems   []pod.Problem `json:"problems"`
	// Needs lists what the pods and claims of a single file refer to but the file does not
	// contain: another file may have it.
	Needs []pod.Problem `json:"needs,omitempty"`
	// LeftOut lists the directory entries that are not manifests.
	LeftOut []string `json:"leftOut,omitempty"`
}

// Validate checks manifests as a Source would, without watching or storing anything. A path is
// a file, a directory, or "-" for stdin, which is read to its end. All paths form one set.
// Validate checks names and numbers in that set, and whether pods find the ConfigMaps, Secrets
// and claims that they name, and claims a volume. Anything missing is a warning in a directory
// or several files; for a single file it goes into Needs. Problems are sorted by file and line.
// Validate sets Origin, Now and Needs of opt.
func Validate(paths []string, opt manifest.Options, stdin io.Reader) Verdict {
	opt.Now, opt.Needs = time.Now(), true
	v := validator{opt: opt, seen: map[string]bool{}, Verdict: Verdict{Pods: []string{}, ConfigMaps: []string{}, Secrets: []string{}, Problems: []pod.Problem{}}}
	for _, path := range paths {
		if path == "-" {
			v.stream("standard input", stdin)
		} else {
			v.path(path)
		}
	}
	v.checkSet()
	for _, problems := range [][]pod.Problem{v.Problems, v.Needs} {
		slices.SortStableFunc(problems, func(a, b pod.Problem) int {
			return cmp.Or(cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Line, b.Line))
		})
		dedupeExamples(problems)
	}
	return v.Verdict
}

// validator is a Verdict under construction.
type validator struct {
	Verdict
	opt     manifest.Options
	content manifest.Content
	needs   []manifest.Need
	seen    map[string]bool // files, by name
	// complete says that the set may be everything that podd is to have.
	complete bool
}

func (v *validator) stream(origin string, r io.Reader) {
	data, err := io.ReadAll(io.LimitReader(r, manifest.MaxBytes+1))
	if err != nil {
		err = &Unreadable{Message: "cannot read the standard input: " + err.Error()}
	}
	v.manifest(origin, data, err)
}

func (v *validator) path(path string) {
	files, leftOut, err := manifestsOf(path)
	v.complete = v.complete || !slices.Equal(files, []string{filepath.Clean(path)}) // a directory
	v.LeftOut = append(v.LeftOut, leftOut...)
	if err != nil {
		v.Problems = append(v.Problems, pod.Problem{Origin: path, Message: err.Error(), Hint: "is this the right path?", Since: v.opt.Now})
	}
	for _, name := range files {
		if !v.seen[name] { // a file that is named twice is no duplicate of itself
			v.seen[name] = true
			data, err := Read(name)
			v.manifest(name, data, err)
		}
	}
}

func (v *validator) manifest(origin string, data []byte, err error) {
	v.Files++
	if u, ok := errors.AsType[*Unreadable](err); ok {
		v.Problems = append(v.Problems, pod.Problem{Origin: origin, Message: u.Message, Hint: u.Hint, Since: v.opt.Now})
		return
	}
	opt := v.opt
	opt.Origin = origin
	r := manifest.Decode(data, opt)
	v.content.Pods = append(v.content.Pods, r.Pods...)
	v.content.Objects = append(v.content.Objects, r.Objects...)
	v.Problems = append(v.Problems, r.Problems...)
	v.needs = append(v.needs, r.Needs...)
}

// checkSet makes the checks that need the whole set.
func (v *validator) checkSet() {
	pods, objects := v.content.Pods, v.content.Objects
	v.Problems = append(v.Problems, podconfig.Duplicates(pods, objects)...)
	if len(pods) > manifest.MaxPods {
		v.Problems = append(v.Problems, v.tooMany(pods[manifest.MaxPods].Origin, manifest.MaxPods, "pods"))
	}
	if len(objects) > manifest.MaxObjects {
		v.Problems = append(v.Problems, v.tooMany(objects[manifest.MaxObjects].Origin, manifest.MaxObjects, "ConfigMaps, Secrets and other objects"))
	}
	if has := contentSizeOf(v.content); has.bytes > manifest.MaxObjectBytes {
		v.Problems = append(v.Problems, v.tooMany(objects[len(objects)-1].Origin, manifest.MaxObjectBytes>>20, "MiB of values in ConfigMaps and Secrets"))
	}
	whole := v.complete || v.Files > 1
	missing, elsewhere := manifest.Missing(v.content, v.needs, v.Problems, whole, v.opt.Now)
	v.Problems, v.Needs = append(v.Problems, missing...), append(v.Needs, elsewhere...)
	if claims := unboundClaims(v.content, whole, v.opt.Now); whole {
		v.Problems = append(v.Problems, claims...)
	} else {
		v.Needs = append(v.Needs, claims...)
	}
	for _, d := range pods {
		v.Pods = append(v.Pods, d.Name())
	}
	for _, o := range objects {
		switch name := o.Key().Namespace + "/" + o.Key().Name; {
		case o.Secret != nil:
			v.Secrets = append(v.Secrets, name)
		case o.Volume != nil:
			v.Volumes = append(v.Volumes, o.Volume.Name)
		case o.Claim != nil:
			v.Claims = append(v.Claims, name)
		case o.Driver != nil:
			v.Drivers = append(v.Drivers, o.Driver.Name)
		default:
			v.ConfigMaps = append(v.ConfigMaps, name)
		}
	}
}

func (v *validator) tooMany(origin string, most int, what string) pod.Problem {
	return pod.Problem{Origin: origin, Since: v.opt.Now,
		Message: fmt.Sprintf("there are more than %d %s, the limit for one source", most, what),
		Hint:    "remove files that are not for this machine"}
}

// manifestsOf returns the file itself, or the manifests of a directory and its other entries.
func manifestsOf(path string) (files, leftOut []string, err error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{filepath.Clean(path)}, nil, nil // reading it will show the error
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read the directory: %w", err)
	}
	for _, e := range entries {
		if IsManifest(e.Name()) {
			files = append(files, filepath.Join(path, e.Name()))
		} else {
			leftOut = append(leftOut, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, leftOut, errors.New("the directory contains no *.yaml, *.yml, *.json or *.manifest")
	}
	return files, leftOut, nil
}
