package tool

import "testing"

func FuzzImageType(f *testing.F) {
	for _, s := range []string{"", "\x89PNG\r\n\x1a\n", "\xff\xd8\xff\xe0\x00\x10JFIF\x00", "GIF89a\x01\x00\x01\x00", "RIFF\x00\x00\x00\x00WEBPVP8 ", "RIFF\xff\xff\xff\xffWEBPVP8X\xff\xff\xff\xff", "<svg/>"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		kind, err := ImageType(data)
		if (kind == "") != (err != nil) {
			t.Errorf("%q, %v", kind, err)
		}
	})
}
