package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// code is a package with its types: what an expression is decides how it can be
// changed.
type code struct {
	fset *token.FileSet
	info *types.Info
	// trees are the package's files by their names, relative to the module.
	trees map[string]*ast.File
}

// listed is a package as go list tells of it.
type listed struct {
	ImportPath, Export, Dir string
	GoFiles                 []string
}

// load parses and checks the package in a directory of the module, without its tests.
func load(ctx context.Context, dir string) (*code, error) {
	packages, err := list(ctx, "./"+dir)
	if err != nil {
		return nil, err
	}
	p := &code{fset: token.NewFileSet(), trees: map[string]*ast.File{}}
	for _, name := range packages[len(packages)-1].GoFiles { // its dependencies come before it
		path := filepath.Join(dir, name)
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if p.trees[path], err = parser.ParseFile(p.fset, path, src, parser.SkipObjectResolution); err != nil {
			return nil, err
		}
	}
	return p, p.check(packages)
}

// list returns packages and what they import. The go command compiles them, if it has not
// done so before.
func list(ctx context.Context, patterns ...string) (packages []listed, err error) {
	args := append([]string{"list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles"}, patterns...)
	c := exec.CommandContext(ctx, "go", args...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	text, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}

// check finds out the types of what has been parsed, which imports those packages.
func (p *code) check(packages []listed) error {
	exports := map[string]string{}
	for _, l := range packages {
		exports[l.ImportPath] = l.Export
	}
	imports := importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(exports[path])
	})
	p.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	var files []*ast.File
	for _, f := range p.trees {
		files = append(files, f)
	}
	_, err := (&types.Config{Importer: imports}).Check("changed", p.fset, files, p.info)
	return err
}

var errorType = types.Universe.Lookup("error").Type()

func (p *code) isError(e ast.Expr) bool {
	t := p.info.TypeOf(e)
	return t != nil && types.Identical(t, errorType)
}

// isDuration says that an expression is a time.Duration, which a constant without a
// type of its own becomes, too.
func (p *code) isDuration(e ast.Expr) bool { return isNamed(p.info.TypeOf(e), "time", "Duration") }

// isNumber says that + and - are what they are among numbers.
func (p *code) isNumber(e ast.Expr) bool {
	t := p.info.TypeOf(e)
	if t == nil {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsNumeric != 0 && b.Info()&types.IsComplex == 0
}

func (p *code) isConstant(e ast.Expr) bool { return p.info.Types[e].Value != nil }

// isLog says that a node is a call of a logger of log/slog, or of one of its functions.
func (p *code) isLog(n ast.Node) bool {
	c, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	if f, ok := p.info.Uses[method.Sel].(*types.Func); ok && f.Pkg() != nil {
		return f.Pkg().Path() == "log/slog"
	}
	return false
}

func isNamed(t types.Type, pkg, name string) bool {
	if t == nil {
		return false
	}
	n, ok := types.Unalias(t).(*types.Named)
	return ok && n.Obj().Name() == name && n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == pkg
}
