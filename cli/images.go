package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"podd/internal/bytesize"
	"podd/server"
)

// ImagesOptions are the options of podd images, rmi and prune.
type ImagesOptions struct {
	StateDir string
	// Output is wide, json, yaml, or empty for the table.
	Output string
}

// List prints the images of the container runtime, the largest first.
func (o *ImagesOptions) List(ctx context.Context, out io.Writer) error {
	var answer server.Images
	err := newClient(o.StateDir).get(ctx, imagesPath, url.Values{}, func(decode func(any) error) error { return decode(&answer) })
	switch {
	case err != nil:
		return err
	case o.Output == "json" || o.Output == "yaml":
		return WriteObject(out, o.Output, answer)
	case len(answer.Images) == 0:
		_, err := fmt.Fprintln(out, "No images.")
		return err
	}
	rows := [][]string{{"IMAGE", "ID", "SIZE", "LAST USED", "PODS"}}
	if o.Output == "wide" {
		rows[0] = append(rows[0], "KEPT", "DIGEST")
	}
	for i := range answer.Images {
		rows = append(rows, imageRow(&answer.Images[i], o.Output == "wide", time.Now()))
	}
	return (&table{width: widthOf(out)}).write(out, rows)
}

// maxUsers is how many pods the table names.
const maxUsers = 3

func imageRow(i *server.Image, wide bool, now time.Time) []string {
	used := "-"
	if i.LastUsed != nil {
		used = age(*i.LastUsed, now)
	}
	pods := i.Pods
	if more := len(pods) - maxUsers; more > 0 {
		pods = append(pods[:maxUsers:maxUsers], fmt.Sprintf("%d more", more))
	}
	row := []string{orDash(i.Names), shortID(i.ID), bytesize.Format(int64(i.Size)), used, orDash(pods)}
	if wide {
		kept := i.Kept
		if kept == "" {
			kept = "-"
		}
		row = append(row, kept, orDash(i.Digests))
	}
	return row
}

func orDash(all []string) string {
	if len(all) == 0 {
		return "-"
	}
	return printable(strings.Join(all, ","))
}

// shortID is what people know an image by: twelve digits.
func shortID(id string) string {
	_, digits, found := strings.Cut(id, ":")
	if !found {
		digits = id
	}
	return printable(digits[:min(len(digits), 12)])
}

// Remove removes images by name or ID, and prints them. It stops at the first that cannot be removed.
func (o *ImagesOptions) Remove(ctx context.Context, out io.Writer, names []string) error {
	for _, name := range names {
		if err := o.remove(ctx, out, url.Values{"image": {name}}); err != nil {
			return err
		}
	}
	return nil
}

// Prune removes the images that nobody uses, and prints them.
func (o *ImagesOptions) Prune(ctx context.Context, out io.Writer) error {
	return o.remove(ctx, out, url.Values{"unused": {""}})
}

func (o *ImagesOptions) remove(ctx context.Context, out io.Writer, query url.Values) error {
	var removed server.Images
	if err := newClient(o.StateDir).post(ctx, removeImagesPath, query, &removed); err != nil {
		return err
	}
	var size uint64
	for _, i := range removed.Images {
		size += i.Size
		fmt.Fprintf(out, "removed %s (%s)\n", orDash(i.Names), shortID(i.ID))
	}
	if !query.Has("unused") {
		return nil
	}
	if len(removed.Images) == 0 {
		_, err := fmt.Fprintln(out, "No image is unused.")
		return err
	}
	what := "images"
	if len(removed.Images) == 1 {
		what = "image"
	}
	_, err := fmt.Fprintf(out, "%d %s, %s\n", len(removed.Images), what, bytesize.Format(int64(size)))
	return err
}
