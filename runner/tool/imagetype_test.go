package tool

import (
	"bytes"
	"image"
	"image/color/palette"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"
	"slices"
	"testing"
)

// An image counts only when all of it is there: no part of one is a picture to
// the service.
func TestWholeImages(t *testing.T) {
	t.Parallel()
	pic := image.NewPaletted(image.Rect(0, 0, 40, 30), palette.Plan9)
	draw.Draw(pic, image.Rect(5, 5, 20, 20), image.White, image.Point{}, draw.Src)
	var p, j, g bytes.Buffer
	animation := &gif.GIF{Image: []*image.Paletted{pic, pic}, Delay: []int{1, 1}}
	for _, err := range []error{png.Encode(&p, pic), jpeg.Encode(&j, pic, nil), gif.EncodeAll(&g, animation)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	// A preview in the header of a JPEG ends like a picture.
	preview := append([]byte{0xFF, 0xD8, 0xFF, 0xE1, 0x00, 0x06, 0xFF, 0xD9, 0xFF, 0xD9}, j.Bytes()[2:]...)
	for kind, data := range map[string][]byte{"png": p.Bytes(), "jpeg": j.Bytes(), "jpeg with a preview": preview, "gif": g.Bytes()} {
		if _, err := ImageType(data); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if _, err := ImageType(append(bytes.Clone(data), "appended"...)); err != nil {
			t.Errorf("%s with something behind it: %v", kind, err)
		}
		for n := range len(data) - 1 {
			if _, err := ImageType(data[:n]); err == nil {
				t.Errorf("%s: %d of %d bytes count as an image", kind, n, len(data))
				break
			}
		}
	}
	broken := bytes.Clone(p.Bytes())
	broken[len(broken)/2] ^= 1
	if _, err := ImageType(broken); err == nil {
		t.Error("a PNG with a wrong checksum counts as an image")
	}
	const header = 8 + 12 + 13
	note := slices.Concat(p.Bytes()[:header], []byte("\x00\x00\x00\x04tEXta\x00b!wrong"[:12+4]), p.Bytes()[header:])
	if _, err := ImageType(note); err != nil {
		t.Errorf("a PNG with a wrong checksum in a comment: %v", err)
	}
}
