"""`sasl.jaas.config` as Java reads it, for the command line and for Spark."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka._properties import parse_jaas, read_login

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required"
MSK = "software.amazon.msk.auth.iam.IAMLoginModule required"
CONNECTION = "Endpoint=sb://hush.servicebus.windows.net/;SharedAccessKey=hush+/123="


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('a.b.M required user="x" pass="y";', {"user": "x", "pass": "y"}),
        ("M REQUIRED user=x pass='y' ;  ", {"user": "x", "pass": "y"}),
        ("kafkashaded.org.M required;", {}),
        ('M\n  required\n  user="a b;c=d"\n  ;\n', {"user": "a b;c=d"}),
        (r'M required p="a\"b\\c\'d";', {"p": "a\"b\\c'd"}),
        (r'M required p="\101\60\n\tx\q\0501";', {"p": "A0\n\txq(1"}),
        ("M required p='it\"s';", {"p": 'it"s'}),
        ("M required /* a=b */ p=q // more\n r=s; / the end", {"p": "q", "r": "s"}),
        ('M required p="//no /* comment";', {"p": "//no /* comment"}),
        ("M optional p=a-b.c_d$e9;", {"p": "a-b.c_d$e9"}),
        ('M required "quoted key"="x";', {"quoted key": "x"}),
        ('M required p="пароль" q=пароль;', {"p": "пароль", "q": "пароль"}),
    ],
)
def test_jaas(text: str, found: dict[str, str]) -> None:
    module = parse_jaas(text)
    assert (module.name, module.options) == ("M", found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a login module is missing"),
        ("M", "a control flag is missing"),
        ("M hush;", "expected one of required"),
        ('M required p="hush"', "semicolon at the end is missing"),
        ("M required p hush;", "no = after the key number 1"),
        ("M required p=;", "a value of number 1"),
        ("M required p=1hush;", "a value of number 1, in quotes"),
        ('M required p="hush\n";', "the key"),
        ('M required p="hush"; N required;', "more than one login module"),
    ],
)
def test_jaas_that_is_none(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse_jaas(text)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f'{PLAIN} username="u" password="hush"hush";',
        f'{PLAIN} username="$ConnectionString" password={CONNECTION};',
        f"{PLAIN} username=u password=hush/hush;",
        f"{PLAIN} username=u password=-hush;",
        f"{PLAIN} username=u password=.5hush;",
        f"{PLAIN} username=u password=5;",
        f"{PLAIN} username=u password=h@hush;",
        f"{PLAIN} username=u /\n password=hush;\n",
        f'{PLAIN} username="u", password="hush";',
        f'{PLAIN} username="u" password="hush',
    ],
)
def test_what_java_refuses_is_refused_without_a_part_of_the_password(text: str) -> None:
    with pytest.raises(ValueError, match="must be as in Java") as caught:
        read_login(text, "PLAIN")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "mechanism", "login"),
    [
        (f"{PLAIN} username=u password=p;", "", ("PLAIN", {"username": "u", "password": "p"})),
        (
            f'{PLAIN} username="$ConnectionString" password="{CONNECTION}";',
            "PLAIN",
            ("PLAIN", {"username": "$ConnectionString", "password": CONNECTION}),
        ),
        (
            f"{PLAIN} username=u password=p user_a=x serviceName=kafka;",
            "PLAIN",
            ("PLAIN", {"username": "u", "password": "p"}),
        ),
        (
            f"{SCRAM} username=u password=p tokenauth=True;",
            "SCRAM-SHA-512",
            ("", {"username": "u", "password": "p", "tokenauth": True}),
        ),
        (
            f"{OAUTH} clientId=i clientSecret=s scope=x extension_logicalCluster=l;",
            "",
            (
                "OAUTHBEARER",
                {
                    "client_id": "i",
                    "client_secret": "s",
                    "scope": "x",
                    "extensions": {"logicalCluster": "l"},
                },
            ),
        ),
        (
            f'{KERBEROS} useKeyTab=true keyTab="/k" principal="p@R" doNotPrompt=true;',
            "GSSAPI",
            ("GSSAPI", {"keytab": "/k", "principal": "p@R"}),
        ),
        (f"{KERBEROS} useTicketCache=true;", "", ("GSSAPI", {})),
        (f"{MSK} awsProfileName=a;", "AWS_MSK_IAM", ("AWS_MSK_IAM", {"profile": "a"})),
    ],
)
def test_a_login(text: str, mechanism: str, login: tuple[str, dict[str, Any]]) -> None:
    assert read_login(text, mechanism) == login


@pytest.mark.parametrize(
    ("text", "mechanism", "message"),
    [
        (f"{PLAIN} username=u;", "PLAIN", "PlainLoginModule needs password"),
        (f"{PLAIN} usrname=u password=hush;", "PLAIN", "did you mean username?"),
        (f"{PLAIN} username=u password=hush hush=x;", "PLAIN", "an option of PlainLoginModule"),
        (f"{PLAIN} username=u password=hush;", "SCRAM-SHA-256", "mechanism to be PLAIN; it is SC"),
        (f"{SCRAM} username=u password=hush;", "", "SCRAM-SHA-256 or SCRAM-SHA-512; it is not set"),
        (f"{SCRAM} username=u password=hush;", "PLAIN", "SCRAM-SHA-512; it is PLAIN"),
        (f"{OAUTH} unsecuredLoginStringClaim_sub=x;", "", "tokens without a signature"),
        (f"{OAUTH} clientID=x;", "", "did you mean clientId?"),
        (f"{OAUTH} ssl.truststore.location=x;", "", "ssl.truststore.location of OAuthBearer"),
        (f"{KERBEROS} keyTab=k principal=p;", "GSSAPI", "keyTab needs useKeyTab=true"),
        (f"{KERBEROS} useKeyTab=true principal=p;", "GSSAPI", "useKeyTab=true needs keyTab"),
        (f"{KERBEROS} useKeyTab=true keyTab=k;", "GSSAPI", "useKeyTab=true needs principal"),
        (f"{KERBEROS} useTicketCache=true ticketCache=c;", "GSSAPI", "KRB5CCNAME"),
        (f"{KERBEROS} useKeytab=k;", "GSSAPI", "did you mean useKeyTab?"),
        (f"{KERBEROS};", "PLAIN", "to be GSSAPI; it is PLAIN"),
        (f"{MSK} awsRoleArn=x;", "AWS_MSK_IAM", "awsRoleArn of IAMLoginModule"),
        ("x.OtherModule required;", "", "OtherModule is not known; known: Plain"),
    ],
)
def test_a_login_that_cannot_be_honoured(text: str, mechanism: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")) as caught:
        read_login(text, mechanism)
    assert "hush" not in str(caught.value)
