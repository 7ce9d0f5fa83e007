"""Which addresses webhooks may have, a row for each form that leads back inside (D9.1, reliability 15 to 28)."""

from contextlib import nullcontext
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ploti_server.domain.addresses import AddressRefused, check_answers, is_public, read_target

INSIDE = {
    "this machine": ["127.0.0.1", "127.255.255.254", "::1"],
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fdff::1"],
    "link-local and metadata": [
        "169.254.169.254",
        "169.254.0.1",
        "fe80::1",
        "fec0::1",
        "168.63.129.16",
        "fd00:ec2::254",
    ],
    "shared by a carrier": ["100.64.0.1", "100.127.255.255"],
    "multicast": ["224.0.0.1", "239.255.255.250", "ff02::1", "ff0e::1"],
    "mapped": ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:100.64.0.1"],
    "compatible": ["::127.0.0.1", "::10.0.0.1", "::8.8.8.8"],
    "NAT64": ["64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b::a00:1", "64:ff9b:1::8.8.8.8"],
    "6to4": ["2002:7f00:1::1", "2002:a00:1::", "2002:a9fe:a9fe::1", "2002:c0a8:101::1"],
    "Teredo": ["2001:0:808:808::f5ff:fffe", "2001:0:7f00:1::f7f7:f7f7", "2001:0:808:808::80ff:fffe"],
    "unspecified and this network": ["0.0.0.0", "0.1.2.3", "::"],
    "reserved and broadcast": ["240.0.0.1", "255.255.255.255", "192.0.0.1", "192.0.0.8", "192.88.99.1", "5f00::1"],
    "documentation and benchmarks": [
        "192.0.2.1",
        "198.51.100.1",
        "203.0.113.1",
        "198.18.0.1",
        "2001:db8::1",
        "3fff::1",
    ],
    "translated": ["::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8"],
    "never given out": ["1::1", "4000::1", "8000::a9fe:a9fe", "c000::1", "e000::1", "f000::1", "fe00::1"],
    "discard and ORCHID": ["100::1", "2001:10::1", "2001:2::1"],
}
PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "172.32.0.1",
    "100.128.0.1",
    "2606:4700::1",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
    "2001:0:808:808::f7f7:f7f7",
]


@pytest.mark.parametrize(("kind", "address"), [(kind, one) for kind, listed in INSIDE.items() for one in listed])
def test_an_address_that_leads_inside_is_refused(kind, address):
    assert not is_public(ip_address(address))
    with pytest.raises(AddressRefused, match="not public"):
        check_answers([address])
    shown = f"[{address}]" if ":" in address else address
    with pytest.raises(AddressRefused):
        read_target(f"https://{shown}/hooks")


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_passes_also_inside_another_form(address):
    assert is_public(ip_address(address))
    assert check_answers([address]) == (ip_address(address),)


@pytest.mark.parametrize("allow", [False, True])
@pytest.mark.parametrize(
    "found",
    [["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"], ["::1", "2606:4700::1"], ["8.8.8.8", "::ffff:10.0.0.1"]],
)
def test_one_bad_answer_among_good_ones_refuses_the_name(found, allow):
    with pytest.raises(AddressRefused):
        check_answers(found, allow)


@pytest.mark.parametrize("found", [[], ["fe80::1%eth0"], ["8.8.8.8%1"]])
def test_no_answer_or_one_bound_to_an_interface_is_refused(found):
    with pytest.raises(AddressRefused):
        check_answers(found)


@pytest.mark.parametrize("found", [["127.0.0.1"], ["::1"], ["127.0.0.1", "::1"], ["::ffff:127.0.0.1"], ["127.9.9.9"]])
def test_in_development_this_machine_alone_passes(found):
    assert check_answers(found, allow_loopback=True)


@pytest.mark.parametrize("found", [["10.0.0.1"], ["169.254.169.254"], ["64:ff9b::127.0.0.1"], ["0.0.0.0"]])
def test_in_development_the_inner_network_stays_closed(found):
    with pytest.raises(AddressRefused):
        check_answers(found, allow_loopback=True)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://hooks.example.org/x", "begin with https"),
        ("ftp://hooks.example.org/x", "begin with https"),
        ("file:///etc/passwd", "begin with https"),
        ("//hooks.example.org/x", "begin with https"),
        ("hooks.example.org", "begin with https"),
        ("", "plain characters"),
        ("https:///x", "host has to be a name"),
        ("https://localhost/x", "own machine"),
        ("https://LOCALHOST./x", "own machine"),
        ("https://a.localhost/x", "own machine"),
        ("https://2130706433/", "usual form"),
        ("https://0x7f000001/", "usual form"),
        ("https://0x7f.1/", "usual form"),
        ("https://127.1/", "usual form"),
        ("https://0177.0.0.1/", "usual form"),
        ("https://127.0.0.1./", "usual form"),
        ("https://08.8.8.8/", "usual form"),
        ("https://user:word@hooks.example.org/", "user name"),
        ("https://hooks.example.org@127.0.0.1/", "user name"),
        ("https://hooks.example.org\\@127.0.0.1/", "plain characters"),
        ("https://hooks.example.org/a b", "plain characters"),
        ("https://hooks.example.org/\r\nHost: x", "plain characters"),
        ("https://hooks.example.org/ü", "plain characters"),
        ("https://hooks.example.org/x#y", "from # on"),
        ("https://hooks.example.org:22/", "port"),
        ("https://hooks.example.org:80/", "port"),
        ("https://hooks.example.org:0/", "port"),
        ("https://hooks.example.org:65536/", "not an address"),
        ("https://hooks.example.org:-1/", "not an address"),
        ("https://[::1/", "not an address"),
        ("https://[hooks]/", "not an address|usual form"),
        ("https://-a.example.org/", "usual form"),
        ("https://a..example.org/", "usual form"),
        ("https://a%2eexample.org/", "usual form"),
        ("https://" + "a." * 130 + "org/", "usual form"),
        ("https://hooks.example.org/" + "a" * 2000, "plain characters"),
    ],
)
def test_other_addresses_are_refused_with_a_reason(url, message):
    with pytest.raises(AddressRefused, match=message):
        read_target(url)


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("https://acme.example/hooks/ploti", "acme.example", "/hooks/ploti"),
        ("https://ACME.example", "acme.example", "/"),
        ("https://acme.example:443/?a=b&c", "acme.example", "/?a=b&c"),
        ("https://acme.example:8443/x", "acme.example:8443", "/x"),
        ("https://xn--bcher-kva.example/%C3%BC", "xn--bcher-kva.example", "/%C3%BC"),
        ("https://8.8.8.8/x", "8.8.8.8", "/x"),
        ("https://[2606:4700::1]:8443/x", "[2606:4700::1]:8443", "/x"),
        ("https://my_host.example/", "my_host.example", "/"),
    ],
)
def test_an_https_address_is_taken_apart_for_the_request(url, authority, path):
    target = read_target(url)
    assert (target.authority, target.path, target.scheme) == (authority, path, "https")


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:9000/x",
        "http://127.0.0.1:80/",
        "https://localhost/",
        "http://[::1]:9/",
        "http://[::ffff:127.0.0.1]:81/",
        "http://127.9.9.9:22/",
        "HTTP://LOCALHOST.:81/",
        "https://hooks.localhost:81/",
    ],
)
def test_in_development_http_to_this_machine_passes(url):
    assert read_target(url, allow_loopback=True)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://example.com/", "begin with https"),
        ("http://8.8.8.8/", "begin with https"),
        ("http://10.0.0.1/", "begin with https"),
        ("http://localhost.example.com/", "begin with https"),
        ("http://notlocalhost/", "begin with https"),
        ("https://example.com:81/", "port"),
        ("https://8.8.8.8:22/", "port"),
        ("https://10.0.0.1/", "not public"),
        ("https://[::ffff:10.0.0.1]/", "not public"),
        ("https://0.0.0.0/", "not public"),
        ("https://127.1/", "usual form"),
        ("ftp://localhost/", "begin with https"),
        ("http://user:word@localhost/", "user name"),
    ],
)
def test_in_development_every_other_host_keeps_its_rules(url, message):
    with pytest.raises(AddressRefused, match=message):
        read_target(url, allow_loopback=True)


@pytest.mark.parametrize(("url", "passes"), [("http://example.com/x", True), ("http://example.com:81/x", False)])
def test_a_copy_comes_over_http_too_and_in_development_from_no_further_port(url, passes):
    with nullcontext() if passes else pytest.raises(AddressRefused, match="port"):
        read_target(url, allow_loopback=True, plain=True)


@given(st.ip_addresses(v=4))
def test_the_forms_of_an_ipv4_address_are_as_public_as_itself(address):
    number = int(address)
    forms = [
        ip_address(f"::ffff:{address}"),
        ip_address((0x64FF9B << 96) | number),
        ip_address((0x2002 << 112) | (number << 80) | 1),
        ip_address((0x20010000 << 96) | (number << 64) | (~0x08080808 & 0xFFFFFFFF)),
        ip_address((0x20010000 << 96) | (0x08080808 << 64) | (~number & 0xFFFFFFFF)),
    ]
    assert [is_public(form) for form in forms] == [is_public(address)] * len(forms)
