package tool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	_ "image/gif" // formats that DecodeConfig knows
	_ "image/jpeg"
	"strings"
)

// ImageType is the MIME type of an image that the service takes, told by its
// content; the name does not matter. The error says, as the end of a sentence
// about the file, why it is none: the service refuses a whole request for one
// image that is damaged or was still being written, and every later one of the
// thread. Pixels are not decoded, so a large picture costs no memory.
func ImageType(data []byte) (string, error) {
	if len(data) >= 30 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP" {
		size := int64(binary.LittleEndian.Uint32(data[4:])) + 8
		if chunk := string(data[12:15]); chunk == "VP8" && size <= int64(len(data)) {
			return "image/webp", nil
		}
		return "", errors.New("is a WebP file that is cut short or damaged")
	}
	if bytes.HasPrefix(data, []byte("\x89PNG\r\n\x1a\n")) {
		if !wholePNG(data) {
			return "", errors.New("is a PNG file that is cut short or damaged")
		}
		return "image/png", nil
	}
	conf, format, err := image.DecodeConfig(bytes.NewReader(data))
	switch {
	case errors.Is(err, image.ErrFormat):
		return "", errors.New("is not a PNG, JPEG, GIF or WebP image")
	case err != nil:
		return "", fmt.Errorf("is damaged: %w", err)
	case conf.Width <= 0 || conf.Height <= 0:
		return "", errors.New("is damaged: it has no size")
	}
	whole := map[string]func([]byte) bool{"jpeg": wholeJPEG, "gif": wholeGIF}[format]
	if whole == nil || !whole(data) {
		return "", fmt.Errorf("is a %s file that is cut short or damaged", strings.ToUpper(format))
	}
	return "image/" + format, nil
}

// wholePNG walks the chunks from the header, which tells a size, to the last one.
// Only those without which there is no picture need the right checksum: readers
// pass over others that have a wrong one, as colour profiles in use have.
func wholePNG(data []byte) bool {
	const signature, name, size = 8, 12, 16 // where chunks, the first name and the size begin
	if len(data) < size+8 || string(data[name:size]) != "IHDR" ||
		binary.BigEndian.Uint32(data[size:]) == 0 || binary.BigEndian.Uint32(data[size+4:]) == 0 {
		return false
	}
	for data = data[signature:]; len(data) >= 12; {
		length := int64(binary.BigEndian.Uint32(data))
		if length+12 > int64(len(data)) {
			return false
		}
		body, sum := data[4:8+length], binary.BigEndian.Uint32(data[8+length:])
		const ancillary = 0x20 // in the first letter of a chunk's name
		if body[0]&ancillary == 0 && crc32.ChecksumIEEE(body) != sum {
			return false
		}
		if string(body[:4]) == "IEND" {
			return true
		}
		data = data[12+length:]
	}
	return false
}

// wholeJPEG looks for the end of the picture behind its header. The header is
// walked, since a preview in it has an end of its own.
func wholeJPEG(data []byte) bool {
	for data = data[2:]; len(data) >= 4 && data[0] == 0xFF; {
		marker := data[1]
		if marker == 0xFF { // padding
			data = data[1:]
			continue
		}
		size := int(binary.BigEndian.Uint16(data[2:])) + 2
		if size > len(data) {
			return false
		}
		if data = data[size:]; marker == 0xDA { // what follows is the picture
			return bytes.Contains(data, []byte{0xFF, 0xD9})
		}
	}
	return false
}

// wholeGIF walks the blocks to the trailer; at least one holds a picture.
func wholeGIF(data []byte) bool {
	at, pictures := 13+colours(data[10]), 0
	for at < len(data) {
		switch data[at] {
		case 0x3B:
			return pictures > 0
		case 0x21: // extension: label, then sub-blocks
			at += 2
		case 0x2C: // descriptor, palette, code size, then sub-blocks
			if at+10 > len(data) {
				return false
			}
			at += 11 + colours(data[at+9])
			pictures++
		default:
			return false
		}
		for at < len(data) && data[at] != 0 {
			at += 1 + int(data[at])
		}
		at++
	}
	return false
}

// colours is the size of the colour table that flags tell of.
func colours(flags byte) int {
	if flags&0x80 == 0 {
		return 0
	}
	return 3 << (flags&7 + 1)
}
