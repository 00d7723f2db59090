//go:build manpages

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"podd/config"
)

// A build with the tag manpages does nothing but write podd's manual pages into a directory
// (hack/package.sh). It is run in the repository, whose docs it reads. $SOURCE_DATE_EPOCH dates
// the pages.
func init() {
	if len(os.Args) != 3 || os.Args[1] != "manpages" {
		fmt.Fprintln(os.Stderr, "usage: podd manpages DIRECTORY")
		os.Exit(2)
	}
	if err := writeManPages(os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

const (
	manual   = "podd's manual"
	dateForm = "Jan 2006"
)

func writeManPages(dir string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	date := time.Unix(seconds, 0).UTC()
	source := "podd " + thisVersion().Version
	root := newRootCmd(false)
	root.DisableAutoGenTag = true
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if err := writeCommands(root, dir, &doc.GenManHeader{Section: "8", Date: &date, Source: source, Manual: manual}); err != nil {
		return err
	}
	for _, page := range []struct {
		name, summary string
		text          func() ([]byte, error)
	}{
		{"podd-manifests", "what podd runs: pods and their objects, in files", func() ([]byte, error) { return os.ReadFile("docs/manifests.md") }},
		{"podd-config", "flags, files and directories of podd", configPage},
	} {
		text, err := page.text()
		if err != nil {
			return err
		}
		head := fmt.Sprintf("%% %q \"5\" %q %q %q\n\n# NAME\n\n%s - %s\n\n", page.name, date.Format(dateForm), source, manual, page.name, page.summary)
		roff := md2man.Render(append([]byte(head), text...))
		if err := os.WriteFile(filepath.Join(dir, page.name+".5"), roff, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeCommands writes a page for each command that help lists.
func writeCommands(cmd *cobra.Command, dir string, header *doc.GenManHeader) error {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			if err := writeCommands(c, dir, header); err != nil {
				return err
			}
		}
	}
	of := *header
	var page bytes.Buffer
	if err := doc.GenMan(cmd, &of, &page); err != nil {
		return err
	}
	name := bytes.ReplaceAll([]byte(cmd.CommandPath()), []byte(" "), []byte("-"))
	return os.WriteFile(filepath.Join(dir, string(name)+".8"), page.Bytes(), 0o644)
}

// configPage is podd-config(5): the page about the configuration, and the table of all fields.
func configPage() ([]byte, error) {
	text, err := os.ReadFile("docs/configuration.md")
	if err != nil {
		return nil, err
	}
	var fields bytes.Buffer
	if err := config.Explain(&fields, ""); err != nil {
		return nil, err
	}
	text = append(text, "\n## All fields\n\n"...)
	for line := range bytes.Lines(fields.Bytes()) {
		text = append(append(text, "    "...), line...)
	}
	return text, nil
}
