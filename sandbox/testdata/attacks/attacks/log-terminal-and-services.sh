#!/usr/bin/env bash
# class: log
# tries: workflow commands in the middle of lines, in pieces, behind colours and odd blanks; sections; terminal sequences; text that runs backwards
. "$(dirname "$0")/atk.sh"
printf 'a ##vso[task.setvariable variable=x]y\nb ##[add-path]/p\n c##teamcity[buildStatus]\n'
printf '#\033[0m#vso[x]\n\033[31m::set-env name=a::b\n\302\240::error::x\n\342\200\250::error::x\n\013::error::x\n\f::error::x\n\302\205::error::x\n'
for c in : : s e t - o u t p u t ' ' n : : v; do printf %s "$c"; sleep 0.01; done; echo
printf '#'; sleep 0.05; printf '#vs'; sleep 0.05; printf 'o[task.complete]\n'
printf 'section_start:1:x\r\033[0Kheader\n\033]0;title\007\033]52;c;aGk=\007\033[8mha:x\033[0m\033[2J\033[1;1H\033P1$x\033\\\n'
printf '\302\2332J\302\2200;x\302\234\2332J\n\342\200\256esrever\342\201\246x\342\201\251\u200b\u200f\n'
head -c 200000 /dev/zero | tr '\0' '#'; printf '[x]\n'; head -c 100000 /dev/zero | tr '\0' ' '; printf '::set-output name=a::b\n'
held
