// Command bom writes what is in podd's programs: a bill of materials (SPDX 2.3, as JSON), and the
// licences of all modules, as they want to be handed on. It reads the modules from the programs
// themselves, and their licences from the module cache: who has built a program has these. The same
// programs give the same bytes.
package main

import (
	"cmp"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/licensecheck"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
	"golang.org/x/mod/module"
)

func main() {
	var o options
	flag.StringVar(&o.version, "version", "", "podd's version")
	flag.Int64Var(&o.created, "created", 0, "time of the bill, in seconds since 1970")
	flag.StringVar(&o.bill, "bill", "", "file for the bill of materials")
	flag.StringVar(&o.licences, "licences", "", "file for the licences")
	flag.Func("static", "NAME=VERSION=FILE: a library that is linked statically, with its copyright file; may be repeated", func(s string) error {
		parts := strings.SplitN(s, "=", 3)
		if len(parts) != 3 {
			return errors.New("give NAME=VERSION=FILE")
		}
		o.static = append(o.static, component{name: parts[0], version: parts[1], files: []string{parts[2]}})
		return nil
	})
	flag.Parse()
	if err := o.run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bom:", err)
		os.Exit(1)
	}
}

type options struct {
	version, bill, licences string
	created                 int64
	static                  []component
}

// component is a module, or a library that is linked statically.
type component struct {
	name, version, sum string
	// files are its licences, notices and patents.
	files   []string
	licence string // SPDX's expression; NOASSERTION if unknown
	module  bool
}

func (o *options) run(programs []string) error {
	if len(programs) == 0 {
		return errors.New("name the programs")
	}
	parts, err := modules(programs)
	if err != nil {
		return err
	}
	for _, s := range o.static {
		s.licence = "NOASSERTION"
		parts = append(parts, s)
	}
	for i := range parts {
		if err := parts[i].identify(); err != nil {
			return err
		}
	}
	slices.SortFunc(parts, func(a, b component) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.version, b.version))
	})
	if err := writeLicences(o.licences, parts); err != nil {
		return err
	}
	return o.writeBill(parts)
}

// modules returns the modules of Go programs, each version once.
func modules(programs []string) ([]component, error) {
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOMODCACHE: %w", err)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	found := map[string]component{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, err
		}
		std := component{name: "std", version: strings.TrimPrefix(info.GoVersion, "go"), module: true}
		if std.files, err = licenceFiles(strings.TrimSpace(string(root))); err != nil {
			return nil, err
		}
		found["std@"+std.version] = std
		// The main module is podd's, or one that builds a program out of a module.
		for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
			for m.Replace != nil {
				m = m.Replace
			}
			if m.Path == "podd" || strings.HasPrefix(m.Path, "podd/") || m.Version == "" || m.Version == "(devel)" {
				continue
			}
			path, err1 := module.EscapePath(m.Path)
			version, err2 := module.EscapeVersion(m.Version)
			if err := errors.Join(err1, err2); err != nil {
				return nil, err
			}
			c := component{name: m.Path, version: m.Version, sum: m.Sum, module: true}
			if c.files, err = licenceFiles(filepath.Join(strings.TrimSpace(string(cache)), path+"@"+version)); err != nil {
				return nil, err
			}
			if len(c.files) == 0 {
				return nil, fmt.Errorf("%s: no licence in the module cache", m.Path)
			}
			found[m.Path+"@"+m.Version] = c
		}
	}
	return slices.Collect(maps.Values(found)), nil
}

var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|copyright)([.-].*)?$`)

// licenceFiles returns a module's licences. What lies deeper is of parts that have others.
func licenceFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && licenceName.MatchString(e.Name()) && !strings.HasSuffix(e.Name(), ".go") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}

// minCoverage is how much of a text must be that of a known licence, in percent.
const minCoverage = 75

// identify names the licences.
func (c *component) identify() error {
	names := map[string]bool{}
	for _, file := range c.files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		cover := licensecheck.Scan(text)
		if cover.Percent < minCoverage {
			continue
		}
		for _, m := range cover.Match {
			if !m.IsURL {
				names[m.ID] = true
			}
		}
	}
	delete(names, "GooglePatentsFile") // a grant beside the licence, which SPDX has no name for
	delete(names, "GooglePatentClause")
	if c.licence = strings.Join(slices.Sorted(maps.Keys(names)), " AND "); c.licence == "" {
		c.licence = "NOASSERTION"
	}
	return nil
}

func writeLicences(path string, parts []component) error {
	var text strings.Builder
	text.WriteString("What podd's programs and its container runtime are made of, and under which licences.\n")
	for _, c := range parts {
		fmt.Fprintf(&text, "\n%s\n%s %s\nLicence: %s\n%s\n", strings.Repeat("=", 78), c.name, c.version, c.licence, strings.Repeat("=", 78))
		for _, file := range c.files {
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			fmt.Fprintf(&text, "\n%s\n", strings.TrimSpace(strings.ToValidUTF8(string(content), "?")))
		}
	}
	return os.WriteFile(path, []byte(text.String()), 0o644)
}

func (o *options) writeBill(parts []component) error {
	root := &spdx.Package{
		PackageName: "podd", PackageSPDXIdentifier: "Package-podd", PackageVersion: o.version, PackageDownloadLocation: "NOASSERTION",
		PackageLicenseConcluded: "Apache-2.0", PackageLicenseDeclared: "Apache-2.0", PackageCopyrightText: "NOASSERTION",
	}
	doc := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: "podd-" + o.version,
		DocumentNamespace: "urn:podd:sbom:" + o.version,
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "podd-bom"}}, Created: time.Unix(o.created, 0).UTC().Format(time.RFC3339),
		},
		Packages:      []*spdx.Package{root},
		Relationships: []*spdx.Relationship{{RefA: common.MakeDocElementID("", "DOCUMENT"), RefB: common.MakeDocElementID("", "Package-podd"), Relationship: "DESCRIBES"}},
	}
	for i, c := range parts {
		p := &spdx.Package{
			PackageName: c.name, PackageSPDXIdentifier: common.ElementID(fmt.Sprintf("Package-%d", i)), PackageVersion: c.version, PackageDownloadLocation: "NOASSERTION",
			PackageLicenseConcluded: c.licence, PackageLicenseDeclared: c.licence, PackageCopyrightText: "NOASSERTION",
		}
		if c.module {
			p.PackageExternalReferences = []*spdx.PackageExternalReference{{
				Category: "PACKAGE-MANAGER", RefType: "purl", Locator: "pkg:golang/" + c.name + "@" + c.version,
			}}
		}
		if c.sum != "" {
			p.PackageComment = "go.sum: " + c.sum
		}
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, &spdx.Relationship{
			RefA: common.MakeDocElementID("", "Package-podd"), RefB: common.MakeDocElementID("", string(p.PackageSPDXIdentifier)), Relationship: "CONTAINS",
		})
	}
	f, err := os.Create(o.bill)
	if err != nil {
		return err
	}
	return errors.Join(spdxjson.Write(doc, f, spdxjson.Indent("  ")), f.Close())
}
